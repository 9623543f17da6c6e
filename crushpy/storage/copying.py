"""Copies all conversations of one database into another, of the same kind or not, and verifies them."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, counted
from crushpy.core.paths import private_dir
from crushpy.security.private_files import write_private
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store

if TYPE_CHECKING:
    from crushpy.storage.transfer import RowDigest

Progress = Callable[[str, int, int], None]
"""Called with the table, the number of its rows that are done, and of all its rows."""
_NAMED = 5
"""Sessions that an error lists."""


class CopyReport(Data, frozen=True):
    """What was copied."""

    rows: dict[str, int]
    """For each table how many rows there are now."""
    added: int
    """How many of them were not there before."""
    outputs: int


async def copy_storage(source: Store, target: Store, outputs: Path, progress: Progress) -> CopyReport:
    """Everything of `source` that is not in `target` yet; verified by counts and hashes, session by session.

    `outputs` is the folder with the whole outputs of tools on this machine. `UsageError` if the target has
    sessions of its own: nothing was written then. An interrupted copy can be continued; until it is finished
    the target cannot be opened otherwise.
    """
    target.location.allows_unfinished = True
    source.location.allows_version_18 = True
    tables = source.transfer.tables
    await _refuse_others(source, target)
    await source.transfer.finish_deletions()
    if await target.transfer.find_unfinished_copy() is None:
        await _refuse_changed(source, target, tables)
    await target.transfer.begin_copy(source.place)
    try:
        added = 0
        for table in tables:
            added += await _copy_table(source, target, table, progress)
        await target.transfer.reset_sequences()
        kept = await _copy_outputs(source, target, outputs)
        rows = await _verified(source, target, tables, progress)
        await target.transfer.finish_copy()
    except StorageError as error:
        hint = f"The copy is unfinished, and {target.place} cannot be used: run the same command to continue."
        raise StorageError(error.message, f"{error.hint} {hint}".strip()) from error
    return CopyReport(rows, added, kept)


async def _refuse_others(source: Store, target: Store) -> None:
    there, ours = await target.transfer.load_session_ids(), await source.transfer.load_session_ids()
    if strange := there - ours:
        raise UsageError(
            f"{target.place} holds {counted(len(strange), 'session')} that {source.place} does not have: "
            f"{_named(strange)}",
            "Copy into an empty database, or into one that an earlier copy was interrupted in.",
        )


async def _refuse_changed(source: Store, target: Store, tables: list[str]) -> None:
    """A session that was continued in one of the two is not overwritten."""
    there = await target.transfer.load_session_ids()
    if not there:
        return
    changed: set[str] = set()
    for table in tables:
        differing = await _differing(source, target, table)
        changed |= there & differing.keys()
    if changed:
        raise UsageError(
            f"{target.place} has {counted(len(changed), 'session')} continued there or in {source.place} "
            f"since the copy: {_named(changed)}",
            "Nothing was written. Copy into an empty database, or delete them there first.",
        )


def _named(sessions: Iterable[str]) -> str:
    first, *rest = sorted(sessions)
    shown = ", ".join((first, *rest[: _NAMED - 1]))
    return f"{shown} and {len(rest) - _NAMED + 1:,} more" if len(rest) >= _NAMED else shown


async def _copy_table(source: Store, target: Store, table: str, progress: Progress) -> int:
    whole = await source.transfer.count_rows(table)
    done = added = 0
    place: Any = None
    parents: dict[str, str] = {}
    while True:
        rows, place = await source.transfer.load_page(table, place)
        if not rows:
            break
        if table == "session":
            parents |= {row["id"]: row["parent_id"] for row in rows if row["parent_id"]}
        added += await target.transfer.add_rows(table, rows)
        done += len(rows)
        progress(table, done, whole)
    if parents:
        await target.transfer.set_parents(parents)
    return added


async def _copy_outputs(source: Store, target: Store, folder: Path) -> int:
    """Copies outputs between folder and database; each is read again for comparison. How many."""
    names = (
        await source.outputs.list_names()
        if source.outputs.in_database
        else await asyncio.to_thread(_files, folder)
    )
    roots = await source.transfer.load_session_ids()
    equal = 0
    for root_id, name in names:
        data = await _output(source, folder, root_id, name) if root_id in roots else None
        if data is None:
            continue
        equal += 1
        if await _output(target, folder, root_id, name) == data:
            continue
        if target.outputs.in_database:
            await target.outputs.save(root_id, name, data)
        else:
            await asyncio.to_thread(_write, folder / root_id / name, data)
        if await _output(target, folder, root_id, name) != data:
            raise StorageError(
                f"the copy of the output {name} of session {root_id} differs from it",
                "Another program wrote to it meanwhile. Stop it.",
            )
    return equal


async def _output(store: Store, folder: Path, root_id: str, name: str) -> bytes | None:
    if store.outputs.in_database:
        return await store.outputs.load(root_id, name)
    return await asyncio.to_thread(_read, folder / root_id / name)


def _read(file: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return file.read_bytes()
    return None


def _files(folder: Path) -> list[tuple[str, str]]:
    return [(file.parent.name, file.name) for file in sorted(folder.glob("*/output-*.txt"))]


def _write(file: Path, data: bytes) -> None:
    private_dir(file.parent)
    write_private(file, data)


async def _verified(source: Store, target: Store, tables: list[str], progress: Progress) -> dict[str, int]:
    rows: dict[str, int] = {}
    for place, table in enumerate(tables, 1):
        differing = await _differing(source, target, table)
        progress("verified", place, len(tables))
        if differing:
            session, (here, there) = min(differing.items())
            whose = f"session {session}" if session else "what belongs to no session"
            more = f" (and {len(differing) - 1:,} more sessions)" if len(differing) > 1 else ""
            raise StorageError(
                f"the copy differs in {table} of {whose}{more}: {here} rows there, {there} here",
                "Another program wrote to one of the two meanwhile. Stop it.",
            )
        rows[table] = await target.transfer.count_rows(table)
    return rows


async def _differing(source: Store, target: Store, table: str) -> dict[str, tuple[int, int]]:
    """The sessions whose rows in a table differ, and how many rows each side has."""
    before, after = await asyncio.gather(
        source.transfer.load_digests(table), target.transfer.load_digests(table)
    )
    return {
        session: (_rows(before.get(session)), _rows(after.get(session)))
        for session in before.keys() | after.keys()
        if before.get(session) != after.get(session)
    }


def _rows(found: "RowDigest | None") -> int:
    return found.count if found else 0
