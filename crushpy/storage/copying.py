"""Copies all conversations of one database into another, of the same kind or not, and proves it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from crushpy.errors import UsageError
from crushpy.messages import Data
from crushpy.paths import private_dir
from crushpy.private_files import write_private
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store

Progress = Callable[[str, int, int], None]
"""Told the table, how many rows of it are through, and how many there are."""


class CopyReport(Data, frozen=True):
    """What was copied."""

    rows: dict[str, int]
    """For each table how many rows there are now."""
    added: int
    """How many of them were not there before."""
    outputs: int


async def copy_storage(source: Store, target: Store, outputs: Path, progress: Progress) -> CopyReport:
    """Everything of `source` that is not in `target` yet; verified by counts and hashes.

    `outputs` is the folder in which this machine keeps whole outputs of tools. `UsageError` where the target
    holds conversations of its own. What was interrupted can be begun again.
    """
    await source.finish_deletions()
    tables = await source.copied_tables()
    await _refuse_others(source, target)
    added = 0
    for table in tables:
        added += await _copy_table(source, target, table, progress)
    await target.finish_copy()
    kept = await _copy_outputs(source, target, outputs)
    return CopyReport(await _verified(source, target, tables, progress), added, kept)


async def _refuse_others(source: Store, target: Store) -> None:
    there, ours = await target.all_session_ids(), await source.all_session_ids()
    if strange := there - ours:
        raise UsageError(
            f"{target.place} holds {len(strange)} sessions that {source.place} does not have",
            "Copy into an empty database, or into one that an earlier copy was interrupted in.",
        )


async def _copy_table(source: Store, target: Store, table: str, progress: Progress) -> int:
    whole = await source.row_count(table)
    done = added = 0
    place: Any = None
    parents: dict[str, str] = {}
    while True:
        rows, place = await source.row_page(table, place)
        if not rows:
            break
        if table == "session":
            parents |= {row["id"]: row["parent_id"] for row in rows if row["parent_id"]}
        added += await target.add_rows(table, rows)
        done += len(rows)
        progress(table, done, whole)
    if parents:
        await target.set_parents(parents)
    return added


async def _copy_outputs(source: Store, target: Store, folder: Path) -> int:
    """From wherever the one keeps them to where the other does."""
    names = await source.output_names() if source.keeps_outputs else await asyncio.to_thread(_files, folder)
    roots = await source.all_session_ids()
    copied = 0
    for root_id, name in names:
        file = folder / root_id / name
        if root_id not in roots or (not target.keeps_outputs and file.exists()):
            continue
        data = await (_stored(source, root_id, name) if source.keeps_outputs else _read(file))
        if data is None:
            continue
        if target.keeps_outputs:
            await target.keep_output(root_id, name, data)
        else:
            await asyncio.to_thread(_write, file, data)
        copied += 1
    return copied


def _stored(source: Store, root_id: str, name: str) -> Awaitable[bytes | None]:
    return source.output(root_id, name)


async def _read(file: Path) -> bytes | None:
    return await asyncio.to_thread(file.read_bytes)


def _files(folder: Path) -> list[tuple[str, str]]:
    return [(file.parent.name, file.name) for file in sorted(folder.glob("*/output-*.txt"))]


def _write(file: Path, data: bytes) -> None:
    private_dir(file.parent)
    write_private(file, data)


async def _verified(source: Store, target: Store, tables: list[str], progress: Progress) -> dict[str, int]:
    rows: dict[str, int] = {}
    for place, table in enumerate(tables, 1):
        before, after = await asyncio.gather(source.row_digest(table), target.row_digest(table))
        progress("verified", place, len(tables))
        if before != after:
            raise StorageError(
                f"the copy differs in {table}: {before.count} rows there, {after.count} here",
                "Somebody wrote to one of the two meanwhile. End that, and copy again.",
            )
        rows[table] = after.count
    return rows
