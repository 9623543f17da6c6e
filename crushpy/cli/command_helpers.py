"""What commands share: parameters, printing, and access to stored sessions. Imports Typer."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.workspace import working_folder
from crushpy.core.paths import Paths

if TYPE_CHECKING:
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.storage.records import SessionInfo
    from crushpy.storage.store import Store


JSON_BATCH_ITEMS = 500
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Plain ASCII on a terminal: JSON does not escape all control characters."""
    print_text(json.dumps(value, indent=2, ensure_ascii=sys.stdout.isatty()) + "\n")


class JsonList:
    """Prints a list like `print_json`, in batches while it grows."""

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._begun = False

    def add(self, value: Any) -> None:
        self._held.append(value)
        if len(self._held) == JSON_BATCH_ITEMS:
            self._print()

    def end(self) -> None:
        self._print()
        print_text("\n]\n" if self._begun else "[]\n")

    def _print(self) -> None:
        if self._held:
            items = _list_text(self._held).removeprefix("[").removesuffix("\n]")
            print_text(("," if self._begun else "[") + items)
            self._begun = True
            self._held = []


def _list_text(values: list[Any]) -> str:
    if sys.stdout.isatty():
        return json.dumps(values, indent=2)
    import msgspec  # several times faster

    return msgspec.json.format(msgspec.json.encode(values), indent=2).decode()


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


async def find_session(browser: "SessionBrowser", name: str) -> "SessionInfo":
    return await browser.find(name, str(working_folder()))
