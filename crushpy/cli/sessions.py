"""`crushpy sessions`: lists, shows, exports and deletes what was said and done."""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from crushpy.messages import Message
    from crushpy.storage.records import SessionInfo
    from crushpy.storage.store import Store

T = TypeVar("T")

SHOWN = 30
"""How many conversations a listing shows unless told otherwise."""

SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session's id, the beginning of one, or `latest` for the latest of this folder."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Format(StrEnum):
    markdown = "markdown"
    json = "json"


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True)
    group.command("list")(list_command)
    group.command("show")(show_command)
    group.command("export")(export_command)
    group.command("delete")(delete_command)
    from crushpy.cli import lineage

    lineage.register(group)
    app.add_typer(
        group, name="sessions", help="List, show, search, export, undo and delete what was said and done."
    )


# --- commands ------------------------------------------------------------------------------------------


def list_command(
    everywhere: Annotated[bool, typer.Option("--all", help="Of all folders, not only this one.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="How many, newest first. [default: 30]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the conversations of this folder, newest first."""
    run(_list(everywhere, limit, as_json=as_json))


def show_command(session: SessionId, as_json: AsJson = False) -> None:
    """Print a session: its head, its messages, and a line for each tool call."""
    run(_show(session, as_json=as_json))


def export_command(
    session: SessionId,
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.markdown,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here, not to the terminal.")
    ] = None,
    keep_secrets: Annotated[
        bool, typer.Option("--no-redact", help="Leave in what looks like a password, key or token.")
    ] = False,
) -> None:
    """Write a session, and those it continues, in full. Secrets are redacted."""
    run(_export(session, form, output, keep_secrets=keep_secrets))


def delete_command(
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the whole conversation that a session belongs to. This cannot be undone."""
    run(_delete(session, yes=yes))


# --- what they do --------------------------------------------------------------------------------------


async def _list(everywhere: bool, limit: int | None, *, as_json: bool) -> None:
    cwd = None if everywhere else str(folder())
    shown = limit if limit is not None or as_json else SHOWN
    async with open_store() as store:
        tips = await store.conversation_tips(cwd, None if shown is None else shown + 1)
        left_out = shown is not None and len(tips) > shown
        tips = tips[:shown]
        counts = [await _message_count(store, info) for info in tips]
    if as_json:
        rows = [brief(info) | {"message_count": count} for info, count in zip(tips, counts, strict=True)]
        print_json(rows)
        return
    if not tips:
        where = "yet" if everywhere else f"of {cwd} yet; `crushpy sessions list --all` shows the others"
        print(f"There are no conversations {where}.", file=sys.stderr)
        return
    print_text(_table(tips, counts, folders=everywhere))
    if left_out:
        print("There are more: `--limit N` shows N of them.", file=sys.stderr)


async def _show(name: str, *, as_json: bool) -> None:
    from crushpy.engine.session.export import as_text

    async with open_store() as store:
        info = await find(store, name)
        messages = await store.messages(info.id)
    if as_json:
        print_json(_in_full(info, messages))
    else:
        print_text(as_text(info, messages))


async def _export(name: str, form: Format, output: Path | None, *, keep_secrets: bool) -> None:
    from crushpy.engine.session.export import as_markdown, led_to, redacted
    from crushpy.messages import counted

    async with open_store() as store:
        info = await find(store, name)
        sessions = await led_to(store, info.id)
    if not keep_secrets:
        sessions = [redacted(*session) for session in sessions]
    if form is Format.markdown:
        text = as_markdown(sessions)
    else:
        data: dict[str, Any] = {"conversation": info.root_id, "redacted": not keep_secrets}
        data["sessions"] = [_in_full(*session) for session in sessions]
        text = _json(data, to_terminal=output is None)
    if output is None:
        print_text(text)
        return
    _write(output, text)
    count = sum(len(messages) for _, messages in sessions)
    print(f"{counted(count, 'message')} {'is' if count == 1 else 'are'} in {output}")


async def _delete(name: str, *, yes: bool) -> None:
    from crushpy.errors import UsageError
    from crushpy.messages import counted
    from crushpy.sanitize import one_line

    async with open_store() as store:
        info = await find(store, name)
        sessions = await store.conversation(info.root_id)
        title = one_line(info.title) or "untitled"
        count = counted(sum(session.message_count for session in sessions), "message")
        what = f'conversation {info.root_id} "{title}" ({counted(len(sessions), "session")}, {count})'
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(f"nobody can be asked whether to delete {what}", "Add --yes to delete it.")
            typer.confirm(f"Delete {what}?", abort=True)
        for session in sessions:
            await store.take_lease(session.id)  # not while another process works on it
        await store.delete_conversation(info.root_id)
    _delete_outputs([session.id for session in sessions])
    print(f"Deleted {what}.")


# --- reading -------------------------------------------------------------------------------------------


def run(work: "Coroutine[Any, Any, T]") -> T:
    return asyncio.run(work)


@asynccontextmanager
async def open_store() -> "AsyncGenerator[Store]":
    """The user's store; what is odd about it goes to stderr."""
    from crushpy.paths import Paths
    from crushpy.settings import load
    from crushpy.storage.store import Store

    paths = Paths()
    store = Store(paths.database, load(paths, folder()).settings.database_url)
    try:
        yield store
    finally:
        await store.close()
        for warning in store.warnings:
            print(f"crushpy: {warning}", file=sys.stderr)


async def find(store: "Store", name: str) -> "SessionInfo":
    from crushpy.errors import UsageError

    if name != "latest":
        return await store.session(name)
    cwd = folder()
    found = await store.latest(str(cwd))
    if found is None:
        hint = "`crushpy sessions list --all` shows those of other folders."
        raise UsageError(f"there is no conversation of {cwd} yet", hint)
    return found


async def _message_count(store: "Store", tip: "SessionInfo") -> int:
    """How many messages the conversation has up to its tip."""
    if tip.parent_id is None:
        return tip.message_count
    return sum(session.message_count for session in await store.lineage(tip.id))


def folder() -> Path:
    from crushpy.errors import UsageError

    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("the current folder is gone", "Change to another one (cd).") from error


def _delete_outputs(session_ids: list[str]) -> None:
    """Whole outputs of tools lie in a folder for each session."""
    from crushpy.paths import Paths

    for session_id in session_ids:
        if session_id.isalnum():
            shutil.rmtree(Paths().outputs / session_id, ignore_errors=True)


# --- printing ------------------------------------------------------------------------------------------


def brief(info: "SessionInfo") -> dict[str, Any]:
    """A session without its system prompt."""
    import msgspec

    fields: dict[str, Any] = msgspec.structs.asdict(info)
    del fields["system"]
    fields["usage"] = msgspec.structs.asdict(info.usage)
    fields["todos"] = msgspec.to_builtins(info.todos)
    return fields


def _in_full(info: "SessionInfo", messages: "list[Message]") -> dict[str, Any]:
    import msgspec

    return {**brief(info), "system": info.system, "messages": msgspec.to_builtins(messages)}


def _table(tips: "list[SessionInfo]", counts: list[int], *, folders: bool) -> str:
    from crushpy.engine.session.export import age
    from crushpy.sanitize import one_line

    now = time.time()
    rows = [("ID", "AGE", "MODEL", "MESSAGES", *(("FOLDER",) if folders else ()), "TITLE")]
    for info, count in zip(tips, counts, strict=True):
        folder = (one_line(info.cwd),) if folders else ()
        start = (info.id, age(now - info.updated_at), one_line(info.model), str(count))
        rows.append((*start, *folder, one_line(info.title) or "-"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        lines = (line if len(line) <= room else line[: room - 1] + "…" for line in lines)
    return "\n".join(lines) + "\n"


def print_json(value: Any) -> None:
    print_text(_json(value, to_terminal=True))


def _json(value: Any, *, to_terminal: bool) -> str:
    """A terminal gets plain ASCII: JSON leaves some control characters as they are."""
    return json.dumps(value, indent=2, ensure_ascii=to_terminal and sys.stdout.isatty()) + "\n"


def print_text(text: str) -> None:
    """Writes to stdout, whatever its encoding, and ends quietly where the reader has gone (`| head`)."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(file: Path, text: str) -> None:
    from crushpy.errors import UsageError

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", "Choose another file.") from error
