"""`crushpy sessions context|pin|unpin|pins|rules`: what fills the window, and what every compaction keeps."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import asdict

from crushpy.cli.command_helpers import (
    AsJson,
    DryRun,
    SessionId,
    argument,
    open_session,
    option,
    print_either,
    print_text,
)
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.core.messages import shortened
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.context.budget import Budget
    from crushpy.context.carried import PinView
    from crushpy.context.edits import EditEffect
    from crushpy.context.inspect import Inspection, Row
    from crushpy.context.standing_rules import RuleFact


Messages = list[str] | None


async def context_command(
    session: SessionId,
    drop: Annotated[Messages, option("--drop", "Do not send it. Repeatable.", metavar="MESSAGE")] = None,
    shorten: Annotated[
        Messages,
        option(
            "--shorten",
            "Send only its head and tail; `superseded`: all superseded file views. Repeatable.",
            metavar="MESSAGE",
        ),
    ] = None,
    restore: Annotated[
        Messages,
        option(
            "--restore", "Send it in full again; `all` restores everything. Repeatable.", metavar="MESSAGE"
        ),
    ] = None,
    also: Annotated[bool, option("--also", "With --drop: also what repeats the text of a message.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show what fills the model's context window, message by message, and edit it.

    Nothing is deleted: dropped and shortened messages can be read, searched, exported and restored. A call
    and its results are dropped and restored together.
    """
    from crushpy.context.edits import ContextEdit

    edits = [
        *(ContextEdit("drop", entry, also) for entry in drop or ()),
        *(ContextEdit("shorten", entry) for entry in shorten or ()),
        *(ContextEdit("restore", entry) for entry in restore or ()),
    ]
    async with open_session(session, read_only=dry_run or not edits) as conversation:
        session_id = conversation.info.id
        data: dict[str, Any] = {"session_id": session_id}
        if edits:
            effect = await conversation.context.edit(edits, dry_run=dry_run)
            data |= {"dry_run": dry_run, **msgspec.to_builtins(effect)}
            del data["overrides"]
            lines = _effect_lines(session_id, effect, conversation.context.budget(), dry_run=dry_run)
        else:
            inspection = conversation.context.inspect()
            data |= msgspec.to_builtins(inspection)
            lines = _context_lines(session_id, inspection)
    print_either(as_json, data, lines)


def _effect_lines(session_id: str, effect: "EditEffect", after: "Budget", *, dry_run: bool) -> list[str]:
    from crushpy.context.edits import DONE, effect_words

    lines = [effect_words(effect)]
    for entry in effect.messages:
        suffix = "" if entry.asked else "  (with its unit)"
        lines.append(
            f"  {entry.message_id}  {DONE[entry.kind]}: {entry.before:,} -> {entry.after:,} tokens{suffix}"
        )
    if effect.repeated and not effect.also:
        lines.append("Add --also to drop what repeats the text, too.")
    if dry_run:
        return [*lines, "Nothing was changed. Run it without --dry-run to apply it."]
    lines.append(f"The next request: {after.words}.")
    if any(entry.kind != "restore" for entry in effect.messages):
        names = " ".join(f"--restore {entry.message_id}" for entry in effect.messages[:3] if entry.asked)
        names = "--restore all" if len(effect.messages) > 3 else names
        lines.append(f"To undo: crushpy sessions context {session_id} {names}")
    return lines


def _context_lines(session_id: str, inspection: "Inspection") -> list[str]:
    from crushpy.context.edits import offer_words
    from crushpy.context.forecast import forecast_lines
    from crushpy.context.inspect import dropped_words

    budget = inspection.budget
    lines = [budget.words]
    if inspection.forecast is not None:
        lines += forecast_lines(inspection.forecast)
    lines += dropped_words(inspection)
    if inspection.old_views.message_ids:
        offer = offer_words(inspection.old_views)
        lines.append(f"{offer}: crushpy sessions context {session_id} --shorten superseded")
    lines += ["", f"{'tokens':>9}  {'share':>6}  {'behind':>9}  {'message':<12}  {'kind':<13} "]
    return [*lines, *(_context_line(row, budget.window) for row in inspection.rows)]


def _context_line(row: "Row", window: int) -> str:
    share = row.tokens * 100 / window
    tokens_after = f"{row.cache_lost:,}" if row.message_id else ""
    state = f"  [{row.state}; whole {row.whole_tokens:,}]" if row.state else ""
    cached = "  cached" if row.cached else ""
    columns = f"{row.tokens:>9,}  {share:5.1f}%  {tokens_after:>9}  {row.message_id:<12}  {row.kind:<13}"
    return f"{columns} {one_line(row.name)}{state}{cached}"


MAX_PIN_CHARS = 100


async def pin_command(
    session: SessionId,
    text: Annotated[str | None, option("--text", "Pin this text.", metavar="TEXT")] = None,
    file: Annotated[
        str | None, option("--file", "Pin a file, with its content at each compaction.", metavar="PATH")
    ] = None,
    message: Annotated[str | None, option("--message", "Pin a message.", metavar="ID")] = None,
) -> None:
    """Pin a text, a file or a message: every compaction of the conversation keeps it verbatim."""
    if sum(entry is not None for entry in (text, file, message)) != 1:
        raise UsageError("give one of --text, --file and --message", "crushpy sessions pin ID --text TEXT")

    async with open_session(session, read_only=True) as conversation:
        service = conversation.pins
        if file is not None:
            added = await service.add_file(str(working_folder() / Path(file).expanduser()) if file else "")
        elif message is not None:
            added = await service.add_message(message)
        else:
            added = await service.add_text(text or "")
        listed = await service.listed()
    usage = f"Pins take {listed.tokens:,} of {listed.limit:,} tokens; thinking and cache are unaffected."
    print_text(f"Pinned as {added.number} ({added.kind}). {usage}\n")


async def unpin_command(
    session: SessionId,
    number: Annotated[int, argument("The number in `sessions pins`.", metavar="NUMBER")],
) -> None:
    """Remove a pin."""

    async with open_session(session, read_only=True) as conversation:
        await conversation.pins.remove(number)
    print_text(f"Unpinned {number}.\n")


async def pins_command(session: SessionId, as_json: AsJson = False) -> None:
    """List the pins of a conversation."""
    async with open_session(session, read_only=True) as conversation:
        listed = await conversation.pins.listed()
    lines = [*map(_pin_line, listed.pins), f"{listed.tokens:,} of {listed.limit:,} tokens"]
    print_either(as_json, listed.pins, lines if listed.pins else ["Nothing is pinned in this conversation."])


def _pin_line(pin: "PinView") -> str:
    content = f"({pin.problem})" if pin.problem else pin.text
    words = " ".join(filter(None, (pin.name, content))) if pin.kind != "text" else content
    return f"{pin.number:>3}  {pin.kind:<7}  {pin.tokens:>6,}  {shortened(one_line(words), MAX_PIN_CHARS)}"


async def rules_command(
    session: SessionId,
    add: Annotated[str | None, option("--add", "Add a standing rule.", metavar="TEXT")] = None,
    drop: Annotated[int | None, option("--drop", "Withdraw a standing rule.", metavar="N")] = None,
    as_json: AsJson = False,
) -> None:
    """List the user's standing rules, which every compaction keeps verbatim; add or withdraw one."""
    from crushpy.context.standing_rules import RuleFact

    if add is not None and drop is not None:
        raise UsageError("give either --add or --drop", "crushpy sessions rules ID --add TEXT")
    lines = ["There are no standing rules in this conversation."]
    async with open_session(session, read_only=add is None and drop is None) as conversation:
        added = await conversation.rules.add(add) if add is not None else None
        dropped = await conversation.rules.drop(drop) if drop is not None else None
        listed = await conversation.rules.listed()
    if added is not None:
        lines = [f"Added as rule {added.number}."]
    elif dropped is not None:
        lines = [f"Withdrew rule {dropped.number}: {one_line(dropped.text)}"]
    elif listed.rules:
        left_out = f"; {listed.left_out:,} do not fit" if listed.left_out else ""
        lines = [_rule_line(rule, listed.state(rule)) for rule in listed.rules]
        lines.append(f"{listed.tokens:,} of {listed.limit:,} tokens{left_out}")
    if listed.offer and added is None and dropped is None:
        lines.append(f"{listed.offer}; --add makes one a rule:")
        lines += (f"  - {one_line(text)}" for text in listed.unconfirmed)
    offered = [RuleFact(0, text, ended="unconfirmed", origin="import") for text in listed.unconfirmed]
    rows = [asdict(rule) | {"state": listed.state(rule)} for rule in (*listed.rules, *offered)]
    print_either(as_json, rows, lines)


def _rule_line(rule: "RuleFact", state: str) -> str:
    said = time.strftime("%Y-%m-%d %H:%M", time.localtime(rule.at)) if rule.at else ""
    text = one_line(rule.text) + (f"  ({state})" if state else "")
    return f"{rule.number:>3}  {rule.message_id:<12}  {said:<16}  {text}"


COMMANDS = {
    "context": context_command,
    "pin": pin_command,
    "unpin": unpin_command,
    "pins": pins_command,
    "rules": rules_command,
}
