"""What commands share: parameters, printing, and access to stored sessions. Imports Typer."""

import inspect
import json
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from crushpy.cli.arguments import COMMANDS
from crushpy.cli.completion import complete_sessions
from crushpy.cli.exits import discard_output
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.security.sanitize import safe_json

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.storage.records import SessionInfo
    from crushpy.storage.store import Store


def option(names: str, about: str, **settings: Any) -> Any:
    """An option of a command: its names, separated by blanks. `settings`: more of `typer.Option`."""
    return typer.Option(*names.split(), help=about, **settings)


def argument(about: str, **settings: Any) -> Any:
    """An argument of a command, whose default is not shown. `settings`: more of `typer.Argument`."""
    settings.setdefault("show_default", False)
    return typer.Argument(help=about, **settings)


AsJson = Annotated[bool, option("--json", "Print JSON.")]
DryRun = Annotated[bool, option("--dry-run", "Show what would happen; change nothing.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask.")]


def add_command(app: typer.Typer, name: str, command: Callable[..., Any], *, dashes: bool = False) -> None:
    """Adds a function or coroutine function as a command. `dashes`: its arguments may start with a dash."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        result = command(*args, **kwargs)
        if inspect.iscoroutine(result):
            import asyncio

            asyncio.run(result)

    about = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    settings = {"ignore_unknown_options": True} if dashes else None
    app.command(name, short_help=about, context_settings=settings)(run)


def add_group(
    app: typer.Typer, name: str, commands: Mapping[str, Callable[..., Any]], *, dashes: str = ""
) -> None:
    """Adds a command of the table with its subcommands. `dashes`: the one with `dashes` above."""
    group = typer.Typer(help=COMMANDS[name], no_args_is_help=True, rich_markup_mode=None)
    for subcommand, function in commands.items():
        add_command(group, subcommand, function, dashes=subcommand == dashes)
    app.add_typer(group, name=name)


def print_json(value: Any) -> None:
    """Plain ASCII on a terminal: JSON does not escape invisible characters."""
    if not sys.stdout.isatty():
        with suppress(UnicodeEncodeError):  # a file name may contain any bytes
            written = msgspec.json.format(safe_json(msgspec.json.encode(value)), indent=2)
            print_text(written.decode() + "\n")
            return
    print_text(json.dumps(msgspec.to_builtins(value), indent=2).replace("\x7f", "\\u007f") + "\n")


def format_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line for each row, with aligned columns: at the left, those numbered in `right` at the right."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for number, column in enumerate(columns):
        width = max(map(len, column))
        columns[number] = [text.rjust(width) if number in right else text.ljust(width) for text in column]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def print_lines(lines: Iterable[str]) -> None:
    print_text("\n".join(lines) + "\n")


def print_either(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Prints `value` as JSON, or else the lines."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def confirm(question: str, what: str, *, yes: bool) -> None:
    """Asks on the terminal, unless `yes`; without a terminal UsageError says that `what` needs --yes."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{what} needs a confirmation", "Add --yes to do it.")
        typer.confirm(question, abort=True, err=True)


def print_note(text: str) -> None:
    """Prints what is not part of the output to stderr."""
    print(text, file=sys.stderr)


def print_progress(text: str) -> None:
    """Replaces the current line of a terminal; an empty text erases it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def print_text(text: str) -> None:
    """Writes to stdout in any encoding."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader has gone (`| head`)
        discard_output()


SessionId = Annotated[
    str,
    argument(
        "A session's id, a prefix of one, or `latest` for the latest of this folder.",
        metavar="ID",
        autocompletion=complete_sessions,
    ),
]


@asynccontextmanager
async def open_browser() -> "AsyncGenerator[SessionBrowser]":
    """Browses stored sessions; warnings about the database go to stderr."""
    from crushpy.engine.session.browser import SessionBrowser

    async with open_store() as store:
        yield SessionBrowser(store)


@asynccontextmanager
async def find_session(name: str) -> "AsyncGenerator[tuple[SessionBrowser, SessionInfo]]":
    """A stored session, by its id, a prefix of it, or `latest`, and the browser that has found it."""
    async with open_browser() as browser:
        yield browser, await browser.find(name, str(working_folder()))


@asynccontextmanager
async def open_store() -> "AsyncGenerator[Store]":
    """Opens the user's database; warnings go to stderr."""
    from crushpy.settings.layers import load
    from crushpy.storage.store import Store

    paths = Paths()
    store = Store(paths.database, load(paths, working_folder()).settings.database_url)
    store.listen(lambda words: print_note(f"crushpy: {words}"))
    try:
        yield store
    finally:
        await store.close()
        for warning in store.warnings:
            print_note(f"crushpy: {warning}")


@asynccontextmanager
async def open_session(
    name: str, *, model: str = "", read_only: bool = False
) -> "AsyncGenerator[Conversation]":
    """Opens a session for a command, under the rules of its folder; `read_only`: it may be open elsewhere."""
    from crushpy.bootstrap.opening import open_conversation
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.core.start_options import StartOptions

    async with find_session(name) as (_, info):
        folder = Path(info.cwd) if Path(info.cwd).is_dir() else working_folder()
    options = StartOptions(session=info.id, model=model, read_only=read_only)
    conversation = await open_conversation(ProjectEnvironment(folder, options.setting_flags()), options)
    try:
        await conversation.context.count_exactly()
        yield conversation
    finally:
        await conversation.close()


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar name; empty if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), 1, 0.4)
    return f"Did you mean {near[0]}? " if near else ""
