"""`crushpy compact`: compacts a session, or previews what would be kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crushpy.cli.command_helpers import (
    DryRun,
    add_command,
    argument,
    open_session,
    option,
    print_either,
    print_note,
)
from crushpy.core.boundary import of_this_boundary
from crushpy.core.errors import UsageError
from crushpy.core.events import BoundaryCommitted, Event, Notice
from crushpy.core.messages import Json
from crushpy.core.templates import template_from_file
from crushpy.security.sanitize import clean

if TYPE_CHECKING:
    from crushpy.engine.compaction.draft import Rehearsal


def register(app: typer.Typer) -> None:
    add_command(app, "compact", compact)


async def compact(
    session: Annotated[str, argument("A session's id, or `latest` for the latest of this folder.")],
    focus: Annotated[str, option("--focus", "What the summary should focus on.")] = "",
    template: Annotated[
        list[Path] | None, option("--template", "Use this template; several with --dry-run.", metavar="FILE")
    ] = None,
    model: Annotated[str, option("--model -m", "The model of the session from now on.")] = "",
    dry_run: DryRun = False,
    as_json: Annotated[bool, option("--json", "With --dry-run: print JSON.")] = False,
) -> None:
    """Compact SESSION: continue it in a child that starts with its summary and evidence."""
    from crushpy.context.coverage import carried_words

    files = template or []
    if len(files) > 1 and not dry_run:
        raise UsageError("Several templates can only be compared.", "Add --dry-run, or give one template.")

    def print_event(event: Event) -> None:
        if isinstance(event, Notice):
            print_note(event.text)
        if isinstance(event, BoundaryCommitted):
            carried = carried_words(of_this_boundary(event.facts), event.lineage)
            print(
                f"{event.parent_id} continues in {event.child_id}: {event.tokens_before:,} tokens before, "
                f"{event.tokens_after:,} after; {carried or 'no recorded facts'}."
            )

    async with open_session(session, model=model, read_only=dry_run) as conversation:
        conversation.subscribe(print_event)
        found = [template_from_file("summary", file) for file in files]
        if dry_run:
            results: list[Json] = []
            for own in found or [None]:
                name = own.path if own else "effective template"
                results.append({"template": name, "result": await conversation.context.rehearse(focus, own)})
            print_either(as_json, results, [_report(**result) for result in results])
        elif not await conversation.context.compact(focus, template=found[0] if found else None):
            raise UsageError("Nothing was changed.")


def _report(template: str, result: "Rehearsal | None") -> str:
    if result is None:
        return f"== {template}\nThere is nothing to compact yet."
    return "\n".join((f"== {template}", *result.lines, "", clean(result.text), ""))
