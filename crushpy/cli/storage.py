"""`crushpy storage`: copies all conversations to another database."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    print_either,
    print_note,
    print_progress,
)
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths

if TYPE_CHECKING:
    from crushpy.storage.store import Store

Database = Annotated[
    str,
    argument("A file, sqlite:///FILE, or postgresql://user@host/database."),
]


def register(app: typer.Typer) -> None:
    add_group(app, "storage", {"copy": copy_command})


async def copy_command(source: Database, target: Database, as_json: AsJson = False) -> None:
    """Copy every conversation between SQLite and PostgreSQL, either way, and verify the copy.

    The source is not changed. An interrupted copy is resumed by the same command; until then the target
    cannot be used. File contents stored for `undo` stay on this machine.
    """
    from crushpy.storage.copying import copy_storage

    paths = Paths()
    old, new = _open_database(source), _open_database(target)
    for store in (old, new):
        store.listen(_print_message)
        store.location.replaces_damaged = False
    try:
        if not old.location.exists:
            raise UsageError(f"there is no database {old.place}", "Give the one to copy.")
        if _canonical_name(old) == _canonical_name(new):
            raise UsageError("source and target are the same database", "Give two databases.")
        report = await copy_storage(old, new, paths.outputs, _print_progress)
    except asyncio.CancelledError:
        _print_message("The copy was interrupted. Run the same command again to resume it.")
        raise
    finally:
        await old.close()
        await new.close()
        for warning in (*old.warnings, *new.warnings):
            print_note(f"crushpy: {warning}")
    print_progress("")
    conversations, messages = report.rows["conversation"], report.rows["message"]
    url = new.place if "://" in new.place else f"sqlite:///{new.place}"
    lines = [
        f"{conversations:,} conversations, {messages:,} messages and {report.outputs:,} outputs are in "
        f"{new.place}, equal by count and hash ({report.added:,} rows were new).",
        f"To use it: crushpy config set database_url {url}",
    ]
    print_either(as_json, report, lines)


def _open_database(name: str) -> "Store":
    from crushpy.storage.store import Store

    if "://" in name:
        return Store(Path.cwd() / "crushpy.db", name)
    return Store(Path(name).expanduser().absolute())


def _canonical_name(store: "Store") -> str:
    return store.place if "://" in store.place else str(Path(store.place).resolve())


def _print_progress(table: str, done: int, total: int) -> None:
    print_progress(f"{table}: {done:,} of {total:,}")
    if done >= total and not sys.stderr.isatty():
        print_note(f"{table}: {total:,}")


def _print_message(words: str) -> None:
    print_progress("")
    print_note(f"crushpy: {words}")
