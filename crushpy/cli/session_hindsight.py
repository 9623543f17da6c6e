"""`crushpy sessions hindsight` and `crushpy stats --hindsight`: what was needed after a compaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from crushpy.cli.command_helpers import (
    AsJson,
    SessionId,
    find_session,
    format_table,
    open_browser,
    option,
    print_either,
)
from crushpy.cli.workspace import load_models
from crushpy.core.messages import counted, first_names

if TYPE_CHECKING:
    from crushpy.engine.compaction.judged_boundaries import JudgedBoundary

SHOWN_NAMES = 12
"""Of the names that were not carried."""
TOO_SHORT = "Too short to say anything: after no compaction, made or supposed, did the agent reply 20 times."
LABELS = {
    "kind": {"path": "paths", "identifier": "identifiers", "number": "numbers", "url": "URLs"},
    "said_by": {"user": "said by you", "assistant": "said by the agent", "tool": "shown by tools"},
}


async def hindsight_command(
    session: SessionId = "latest",
    window: Annotated[
        int | None, option("--window", "As if the window had N tokens.", metavar="N", min=1_000)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the agent needed after each compaction, and how much of it had been carried.

    Without a compaction, or with --window: as if crushpy had compacted when the window was full.
    """
    from crushpy.engine.compaction.judged_boundaries import judge_conversation

    settings, models = load_models()
    async with find_session(session) as (browser, info):
        judged = await judge_conversation(browser.store, info.id, settings, models, window)
    lines = [line for number, boundary in enumerate(judged, 1) for line in _boundary(number, boundary)]
    print_either(as_json, {"session": info.id, "boundaries": judged}, [*lines, *_totals(judged)])


async def hindsight_of_all(*, as_json: bool) -> None:
    """The same for the compactions of all conversations."""
    from crushpy.context.hindsight import FIRST_REPLIES
    from crushpy.engine.compaction.judged_boundaries import judge_conversation, shares

    settings, models = load_models()
    judged: list[JudgedBoundary] = []
    async with open_browser() as browser:
        for info in await browser.store.sessions.list_tips():
            found = await judge_conversation(browser.store, info.id, settings, models)
            judged += [boundary for boundary in found if boundary.child_id]
    found = [boundary.found for boundary in judged if boundary.found.replies >= FIRST_REPLIES]
    told = {
        "boundaries": len(judged),
        "needed": sum(len(known.names) for known in found),
        "carried": sum(known.carried for known in found),
        "again_tokens": sum(known.again_tokens for known in found),
        "kind": shares(found, "kind"),
        "said_by": shares(found, "said_by"),
    }
    print_either(
        as_json, told, [f"{counted(len(judged), 'compaction')} of all conversations.", *_totals(judged)]
    )


def _boundary(number: int, boundary: "JudgedBoundary") -> list[str]:
    from crushpy.context.hindsight import FIRST_REPLIES
    from crushpy.engine.compaction.judged_boundaries import hindsight_event, shares

    found = boundary.found
    at = f"{number}. after {counted(boundary.messages, 'message')}"
    made = f"{boundary.trigger}, {boundary.child_id}" if boundary.child_id else "supposed"
    words = hindsight_event(boundary.child_id, found, final=boundary.final).words
    if found.replies < FIRST_REPLIES:
        words = f"too early to say, replies since: {found.replies}"
    lines = [f"{at} ({made}): {words}{'' if boundary.final else ' (so far)'}"]
    parts = [(LABELS[key][value], share) for key in LABELS for value, share in shares([found], key).items()]
    if parts:
        told = (f"{label} {carried} of {needed}" for label, (needed, carried) in parts)
        lines.append(f"   carried: {', '.join(told)}")
    lost = [name.name for name in found.names if not name.carried]
    if lost:
        lines.append(f"   not carried: {first_names(lost, SHOWN_NAMES)}")
    if found.again_tokens:
        again = [first_names(found.read_again, SHOWN_NAMES)] if found.read_again else []
        again += [f"searches: {found.searched_again}"] if found.searched_again else []
        lines.append(f"   looked up again: {', '.join(again)} ({found.again_tokens:,} tokens)")
    for (needed, carried), what in ((found.commands, "commands run again"), (found.lines, "lines for edits")):
        if needed:
            lines.append(f"   {what}: {carried} of {needed} carried")
    return lines


def _totals(judged: "Sequence[JudgedBoundary]") -> list[str]:
    from crushpy.context.hindsight import FIRST_REPLIES
    from crushpy.engine.compaction.judged_boundaries import shares

    found = [boundary.found for boundary in judged if boundary.found.replies >= FIRST_REPLIES]
    if not found:
        return [TOO_SHORT]
    rows = [("", "needed", "carried", "")]
    for key in LABELS:
        for value, (needed, carried) in shares(found, key).items():
            rows.append((LABELS[key][value], str(needed), str(carried), f"{carried / needed:.0%}"))
    return ["", *format_table(rows, right=(1, 2, 3))]
