"""What the commands about sessions share: which session is meant, and the browser that finds it."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from crushpy.cli.folder import working_folder

if TYPE_CHECKING:
    from crushpy.engine.session.browser import SessionBrowser
    from crushpy.storage.records import SessionInfo
    from crushpy.storage.store import Store

SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session's id, the beginning of one, or `latest` for the latest of this folder."
    ),
]


@asynccontextmanager
async def open_browser() -> "AsyncGenerator[SessionBrowser]":
    """What is stored; what is odd about the database goes to stderr."""
    from crushpy.core.paths import Paths
    from crushpy.engine.session.browser import SessionBrowser

    async with open_store() as store:
        yield SessionBrowser(store, outputs=Paths().outputs, undo=Paths().undo)


@asynccontextmanager
async def open_store() -> "AsyncGenerator[Store]":
    """The database of this user; what is odd about it goes to stderr."""
    from crushpy.core.paths import Paths
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
