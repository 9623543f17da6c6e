"""`crushpy sessions import`: imports sessions of other coding agents."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    argument,
    format_table,
    open_store,
    option,
    print_either,
    print_json,
    print_note,
    print_text,
    suggest_name,
)
from crushpy.cli.workspace import load_here, working_folder
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted
from crushpy.security.sanitize import clean, one_line

if TYPE_CHECKING:
    from crushpy.engine.session.importing import ImportOutcome
    from crushpy.importers.foreign import Source


USABLE = ("imported", "updated", "unchanged", "busy")


async def import_command(
    agent: Annotated[
        str,
        argument(
            "The agent, or a file or folder of any of them.", metavar="[claude|codex|opencode|pi|crush|FILE]"
        ),
    ] = "",
    path: Annotated[
        Path | None, argument("A file or folder instead of the default locations.", metavar="[PATH]")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Show what would be imported; store nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import sessions of another coding agent, or list those found. Its own files are not changed."""
    if not agent:
        _print_sources(as_json=as_json)
        return
    from crushpy.engine.session.importing import SessionImporter

    source, path = _find_source(agent, path)
    places = [_require_existing(path)] if path is not None else list(source.places(working_folder()))
    outcomes: list[ImportOutcome] = []
    async with open_store() as store:
        known = store if not dry_run or store.location.exists else None
        method, folder = load_here().settings.compaction.method, str(working_folder())
        importer = SessionImporter(known, compaction=method, folder=folder, dry_run=dry_run)
        async for outcome in importer.run(source, chain.from_iterable(map(source.sessions, places))):
            outcomes.append(outcome)
            if not as_json:
                _print_outcome(outcome, dry_run=dry_run)
    raise typer.Exit(_print_totals(source, places, outcomes, path, dry_run=dry_run, as_json=as_json))


def _find_source(name: str, path: Path | None) -> "tuple[Source, Path | None]":
    """The agent of that name; or that of the sessions in the file or folder `name`, and its path."""
    from crushpy.importers import find_source, sources

    known = {source.name: source for source in sources()}
    if name.lower() in known:
        return known[name.lower()], path
    hint = f"Known agents: {', '.join(known)}."
    if path is None and (place := _existing(Path(name))):
        if (source := find_source(place)) is not None:
            return source, place
        raise UsageError(f"{name} is not a session of a known agent", hint)
    raise UsageError(f"unknown agent {name!r}", f"{suggest_name(name, known)}{hint}")


def _print_sources(*, as_json: bool) -> None:
    """Lists the sessions found and where they were looked for. Imports nothing."""
    from crushpy.importers import sources
    from crushpy.importers.foreign import ForeignSession

    cwd = working_folder()
    rows: list[dict[str, Any]] = []
    for source in sources():
        places = source.places(cwd)
        found = chain.from_iterable(map(source.sessions, places))
        count = len({session.id for session in found if isinstance(session, ForeignSession)})
        row: dict[str, Any] = {"name": source.name, "title": source.title, "sessions": count}
        rows.append(row | {"places": [str(place) for place in places]})
    table = [(row["name"], counted(row["sessions"], "session"), ", ".join(row["places"])) for row in rows]
    print_either(as_json, rows, map(clean, format_table(table)))
    if not as_json and any(row["sessions"] for row in rows):
        print_note("Nothing was imported. To import, name an agent: `crushpy sessions import claude`.")


def _existing(path: Path) -> Path | None:
    """The path in full, if it is a file or folder."""
    try:
        found = path.expanduser().absolute()
        return found if found.is_file() or found.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _require_existing(path: Path) -> Path:
    if (found := _existing(path)) is None:
        raise UsageError(f"{path} does not exist", "Omit it to search the default locations.")
    return found


def _print_outcome(outcome: "ImportOutcome", *, dry_run: bool) -> None:
    """Prints one line per imported conversation."""
    if outcome.status in ("imported", "updated"):
        words = [
            outcome.tip if not dry_run else "would be " + outcome.status,
            counted(outcome.messages, "message"),
        ]
        if outcome.boundaries:
            words.append(counted(outcome.boundaries, "compaction"))
        words.append(one_line(outcome.title))
        if outcome.unmapped:
            words.append(f"(not mapped: {_format_counts(outcome.unmapped)})")
        print_text("  ".join(words) + "\n")
    if outcome.damaged:
        more = outcome.unmapped["damaged"] - len(outcome.damaged)
        places = ", ".join(map(one_line, outcome.damaged)) + (f" and {more:,} more" if more else "")
        print_note(f"{one_line(outcome.file)}: damaged and left out: {places}")
    if outcome.note and outcome.status != "skipped":
        print_note(f"{one_line(outcome.file)}: {one_line(outcome.note)}")
    elif outcome.status == "empty" and outcome.unmapped:
        print_note(f"{one_line(outcome.file)}: {_format_counts(outcome.unmapped)}")


def _format_counts(unmapped: dict[str, int]) -> str:
    """The kinds are words of the file, which may be of any length."""
    shown = ((one_line(kind)[:60] or "line without a type", count) for kind, count in unmapped.items())
    return ", ".join(f"{count:,} {kind}" for kind, count in shown if count)


def _print_totals(
    source: "Source",
    places: list[Path],
    outcomes: "list[ImportOutcome]",
    path: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Prints the totals; returns 1 if a path was given and nothing in it could be used."""
    from collections import Counter

    counts = Counter(outcome.status for outcome in outcomes)
    usable = [outcome for outcome in outcomes if outcome.status in USABLE]
    imported = [outcome for outcome in usable if outcome.status in ("imported", "updated")]
    unmapped: Counter[str] = Counter()
    for outcome in outcomes:
        unmapped.update(outcome.unmapped)
        if outcome.status == "skipped":
            unmapped[outcome.note] += 1
        elif outcome.status in ("failed", "empty"):
            unmapped["session that cannot be read"] += 1
    left_out, messages = dict(sorted(unmapped.items())), sum(outcome.messages for outcome in imported)
    if as_json:
        print_json(
            {
                "source": source.name,
                "dry_run": dry_run,
                "places": [str(place) for place in places],
                "conversations": outcomes,
                "imported": len(imported),
                "messages": messages,
                "unmapped": left_out,
            }
        )
    elif usable:
        figures = {"session": len(imported), "message": messages}
        figures["compaction"] = sum(outcome.boundaries for outcome in imported)
        stored = ", ".join(counted(number, name) for name, number in figures.items() if number)
        tips = [outcome.tip for outcome in usable if outcome.tip and not dry_run]
        words = {
            f"{stored} would be imported" if dry_run else stored: imported,
            f"{counted(counts['unchanged'], 'session')} unchanged since the last import": counts["unchanged"],
            f"{counted(counts['busy'], 'session')} in use here": counts["busy"],
            f"open {'it' if len(tips) == 1 else 'one'} with `crushpy -s {next(iter(tips), '')}`": tips,
            f"not mapped: {_format_counts(left_out)}": left_out,
        }
        print_note("; ".join(text for text, applies in words.items() if applies) + ".")
    else:
        searched = one_line(", ".join(map(str, places)))
        print_note(f"Nothing found: no sessions of {source.title} in {searched}")
    return 0 if usable or path is None else 1


COMMANDS = {"import": import_command}
