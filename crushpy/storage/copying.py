"""Copies all conversations of one database into another, of the same kind or not, and verifies them."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, counted, first_names
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.ddl import KEYS, NUMBERED
from crushpy.storage.records import StorageError
from crushpy.storage.session_rows import json_text
from crushpy.storage.session_store import delete_rows
from crushpy.storage.storage_thread import Subject, stored
from crushpy.storage.store import Store

Progress = Callable[[str, int, int], None]
"""Called with the table, the number of its rows that are done, and of all its rows."""
_NAMED = 5
"""Sessions that an error lists."""
TABLES = list(sql.COUNT_ROWS)
"""In an order in which each row comes after those it refers to."""
COPY = "copy"
"""The maintenance of an unfinished copy; its state is the source."""
_PAGE_ROWS = 200
_OWNERS = {"session": ("id",), "boundary": ("child_id",), "conversation": ("tip_id",)}
"""The columns with the session of a row, if they are not session_id or root_id."""
Place = dict[str, Any]
"""The primary key of a row, as the parameters of the next page."""
Rows = list[dict[str, Any]]
RowDigest = tuple[int, str]
"""The rows of one session in one table, for comparison: how many, and a hash."""


class Transfer(Subject):
    @property
    def place(self) -> str:
        return self._thread.location.place

    @stored
    def find_unfinished_copy(self) -> str | None:
        """The source of a copy that was interrupted here, if there is one."""
        return self._db.execute(sql.FIND_MAINTENANCE, name=COPY).scalar()

    @stored
    def begin_copy(self, source: str) -> None:
        """Until `finish_copy` this database cannot be opened otherwise."""
        with self._db.transaction(durable=True):
            self._db.execute(sql.SAVE_MAINTENANCE, name=COPY, state=source)

    @stored
    def finish_copy(self) -> None:
        with self._db.transaction(durable=True):
            self._db.execute(sql.DELETE_MAINTENANCE, work=COPY)

    @stored
    def delete_some(self) -> bool:
        """Some rows of deleted conversations; False if there are no more."""
        return delete_rows(self._db)

    @stored
    def load_session_ids(self) -> set[str]:
        return set(self._db.execute(sql.LIST_SESSION_IDS).scalars())

    @stored
    def count_rows(self, table: str) -> int:
        return self._db.execute(sql.COUNT_ROWS[table]).scalar()

    def _load_page(self, table: str, after: Place | None) -> tuple[Rows, Place | None]:
        """Some rows after a place, in the order of their keys, and where the next page begins."""
        statements = sql.PAGE_FIRST_ROWS if after is None else sql.PAGE_ROWS
        rows = list(self._db.execute(statements[table], many=_PAGE_ROWS, **(after or {})).dicts())
        return rows, {f"after_{key}": rows[-1][key] for key in KEYS[table]} if rows else None

    load_page = stored(_load_page)

    @stored
    def save_rows(self, table: str, rows: Rows) -> None:
        """Adds or replaces a page of rows."""
        with self._db.transaction(durable=True):
            known = self._find_sessions(rows) if table == "message" else {}
            self._db.execute_many(sql.SAVE_ROW[table], rows)
            if table == "message":
                added = [{"message": row["id"]} for row in rows if row["number"] not in known]
                self._db.execute_many(sql.QUEUE_MESSAGE, added)

    @stored
    def reset_sequences(self) -> None:
        """The next row of each table gets a number above those that were copied."""
        for table in NUMBERED:
            self._db.reset_sequence(table)

    @stored
    def load_digests(self, table: str) -> dict[str, RowDigest]:
        """The rows of a table by session; those of no session have an empty name."""
        hashes: dict[str, Any] = {}
        counts: dict[str, int] = {}
        place: Place | None = None
        while True:
            rows, place = self._load_page(table, place)
            if not rows:
                return {table: (counts[table], found.hexdigest()) for table, found in hashes.items()}
            for row, owner in zip(rows, self._owners(table, rows), strict=True):
                if owner not in hashes:
                    hashes[owner], counts[owner] = sha256(), 0
                hashes[owner].update(msgspec.json.encode(row, order="sorted"))
                counts[owner] += 1

    def _owners(self, table: str, rows: Rows) -> list[str]:
        """The session of each row; empty if it belongs to none."""
        if KEYS[table] == ("number",) and table not in NUMBERED:  # the number of a message
            owners = self._find_sessions(rows)
            return [owners.get(row["number"], "") for row in rows]
        columns = _OWNERS.get(table, ("session_id", "root_id"))
        return [next((row[column] for column in columns if row.get(column)), "") for row in rows]

    def _find_sessions(self, rows: Rows) -> dict[int, str]:
        """The sessions of the messages with the numbers of these rows, as far as they exist."""
        numbers = json_text([row["number"] for row in rows])
        found = self._db.execute(sql.LIST_MESSAGE_SESSIONS, numbers=numbers)
        return {row.number: row.session_id for row in found}


class CopyReport(Data, frozen=True):
    """What was copied."""

    rows: dict[str, int]
    """For each table how many rows there are now."""
    added: int
    """How many of them were not there before."""
    outputs: int


async def copy_storage(old: Store, new: Store, outputs: Path, progress: Progress) -> CopyReport:
    """Everything of `old` that is not in `new` yet; verified by counts and hashes, session by session.

    `outputs` is the folder with the whole outputs of tools on this machine. `UsageError` if the target has
    sessions of its own: nothing was written then. An interrupted copy can be continued; until it is finished
    the target cannot be opened otherwise.
    """
    old.outputs.folder = new.outputs.folder = outputs
    new.location.allows_unfinished = True
    source, target = Transfer(old.thread), Transfer(new.thread)
    while await source.delete_some():
        pass
    await _refuse_others(source, target)
    await target.begin_copy(source.place)
    try:
        before = sum([await target.count_rows(table) for table in TABLES])
        for table in TABLES:
            await _copy_table(source, target, table, progress)
        await target.reset_sequences()
        kept = await _copy_outputs(old, new, await source.load_session_ids())
        rows = await _verify(source, target, progress)
        await target.finish_copy()
    except StorageError as error:
        hint = f"The copy is unfinished, and {target.place} cannot be used: run the same command to continue."
        raise StorageError(error.message, f"{error.hint} {hint}".strip()) from error
    return CopyReport(rows, sum(rows.values()) - before, kept)


async def _refuse_others(source: Transfer, target: Transfer) -> None:
    """A session that only the target has, or that was continued in one of the two, is not overwritten."""
    there, ours = await target.load_session_ids(), await source.load_session_ids()
    if strange := there - ours:
        raise UsageError(
            f"{target.place} holds {counted(len(strange), 'session')} that {source.place} does not have: "
            f"{first_names(sorted(strange), _NAMED)}",
            "Copy into an empty database, or into one that an earlier copy was interrupted in.",
        )
    if not there or await target.find_unfinished_copy() is not None:
        return
    changed: set[str] = set()
    for table in TABLES:
        changed |= there & (await _differing(source, target, table)).keys()
    if changed:
        raise UsageError(
            f"{target.place} has {counted(len(changed), 'session')} continued there or in {source.place} "
            f"since the copy: {first_names(sorted(changed), _NAMED)}",
            "Nothing was written. Copy into an empty database, or delete them there first.",
        )


async def _copy_table(source: Transfer, target: Transfer, table: str, progress: Progress) -> None:
    whole = await source.count_rows(table)
    # Sessions first without their parents, which may not be there yet.
    for without in ({"parent_id": None}, {}) if table == "session" else ({},):
        rows, place = await source.load_page(table, None)
        done = 0
        while rows:
            await target.save_rows(table, [row | without for row in rows])
            done += len(rows)
            progress(table, done, whole)
            rows, place = await source.load_page(table, place)


async def _copy_outputs(source: Store, target: Store, roots: set[str]) -> int:
    """Copies the outputs of tools; each is read again for comparison. How many there are."""
    equal = 0
    for root_id, name in await source.outputs.list_names():
        data = await source.outputs.load(root_id, name) if root_id in roots else None
        if data is None:
            continue
        equal += 1
        if await target.outputs.load(root_id, name) == data:
            continue
        await target.outputs.save(root_id, name, data)
        if await target.outputs.load(root_id, name) != data:
            raise StorageError(
                f"the copy of the output {name} of session {root_id} differs from it",
                "Another program wrote to it meanwhile. Stop it.",
            )
    return equal


async def _verify(source: Transfer, target: Transfer, progress: Progress) -> dict[str, int]:
    rows: dict[str, int] = {}
    for place, table in enumerate(TABLES, 1):
        differing = await _differing(source, target, table)
        progress("verified", place, len(TABLES))
        if differing:
            session, (here, there) = min(differing.items())
            whose = f"session {session}" if session else "what belongs to no session"
            more = f" (and {len(differing) - 1:,} more sessions)" if len(differing) > 1 else ""
            raise StorageError(
                f"the copy differs in {table} of {whose}{more}: {here} rows there, {there} here",
                "Another program wrote to one of the two meanwhile. Stop it.",
            )
        rows[table] = await target.count_rows(table)
    return rows


async def _differing(source: Transfer, target: Transfer, table: str) -> dict[str, tuple[int, int]]:
    """The sessions whose rows in a table differ, and how many rows each side has."""
    before, after = await asyncio.gather(source.load_digests(table), target.load_digests(table))
    return {
        session: (before.get(session, (0, ""))[0], after.get(session, (0, ""))[0])
        for session in before.keys() | after.keys()
        if before.get(session) != after.get(session)
    }
