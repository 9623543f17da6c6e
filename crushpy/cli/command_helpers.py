"""What commands share: parameters, printing, and access to stored sessions. Imports Typer."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import msgspec
import typer

from crushpy.cli.workspace import working_folder
from crushpy.core.paths import Paths
from crushpy.security.sanitize import safe_json

if TYPE_CHECKING:
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.storage.records import SessionInfo
    from crushpy.storage.store import Store


P = ParamSpec("P")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def run_async(command: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A coroutine function as a command of Typer."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        import asyncio

        asyncio.run(command(*args, **kwargs))

    return run


def print_json(value: Any) -> None:
    """Plain ASCII on a terminal: JSON does not escape invisible characters."""
    if not sys.stdout.isatty():
        with suppress(UnicodeEncodeError):  # a file name may contain any bytes
            written = msgspec.json.format(safe_json(msgspec.json.encode(value)), indent=2)
            print_text(written.decode() + "\n")
            return
    print_text(json.dumps(msgspec.to_builtins(value), indent=2).replace("\x7f", "\\u007f") + "\n")


def print_text(text: str) -> bool:
    """Writes to stdout in any encoding. Returns False if the reader has gone (`| head`)."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session's id, a prefix of one, or `latest` for the latest of this folder."
    ),
]


@asynccontextmanager
async def open_browser() -> "AsyncGenerator[SessionBrowser]":
    """Browses stored sessions; warnings about the database go to stderr."""
    from crushpy.engine.session.browser import SessionBrowser

    async with open_store() as store:
        yield SessionBrowser(store, outputs=Paths().outputs, undo=Paths().undo)


@asynccontextmanager
async def open_store() -> "AsyncGenerator[Store]":
    """Opens the user's database; warnings go to stderr."""
    from crushpy.settings import load
    from crushpy.storage.store import Store

    paths = Paths()
    store = Store(paths.database, load(paths, working_folder()).settings.database_url)
    store.listen(lambda words: print(f"crushpy: {words}", file=sys.stderr))
    try:
        yield store
    finally:
        await store.close()
        for warning in store.warnings:
            print(f"crushpy: {warning}", file=sys.stderr)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar name; empty if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), 1, 0.4)
    return f"Did you mean {near[0]}? " if near else ""


async def find_session(browser: "SessionBrowser", name: str) -> "SessionInfo":
    return await browser.find(name, str(working_folder()))
