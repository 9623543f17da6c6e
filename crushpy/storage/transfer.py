"""`store.transfer`: whole rows, for copying a database into another (`copying.py`)."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from crushpy.core.messages import Data
from crushpy.storage.codec import to_json
from crushpy.storage.deletion import delete_rows
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.schema import BOOLEANS, KEYS, NUMBERED
from crushpy.storage.storage_thread import Subject, stored

COPY = "copy"
"""The maintenance of an unfinished copy; its state is the source."""
_PAGE_ROWS = 200
_PAGE_CHARS = 4_000_000
_OWNERS = {"session": ("id",), "boundary": ("child_id",), "conversation": ("tip_id",)}
"""The columns with the session of a row, if they are not session_id or root_id."""
Place = tuple[Any, ...]
"""The primary key of a row."""
Rows = list[dict[str, Any]]


class RowDigest(Data, frozen=True):
    """The rows of one session in one table, for comparison."""

    count: int
    hash: str


class TransferStore(Subject):
    @property
    def tables(self) -> list[str]:
        """In an order in which each row comes after those it refers to."""
        return list(sql.COUNT_ROWS)

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

    async def finish_deletions(self) -> None:
        """Removes the rows of deleted conversations. Version 18 is only read: they are copied as they are."""
        while not self._thread.location.is_version_18 and await self._thread.run(
            lambda: delete_rows(self._db)
        ):
            pass

    @stored
    def load_session_ids(self) -> set[str]:
        return set(self._db.execute(sql.LIST_SESSION_IDS).scalars())

    @stored
    def count_rows(self, table: str) -> int:
        return self._db.execute(sql.COUNT_ROWS[table]).scalar()

    @stored
    def load_page(self, table: str, after: Place | None) -> tuple[Rows, Place | None]:
        """Some rows after a place, in the order of their keys, and where the next page begins."""
        return self._load_page(table, after)

    def _load_page(self, table: str, after: Place | None) -> tuple[Rows, Place | None]:
        if after is None:
            found = self._db.execute(sql.PAGE_FIRST_ROWS[table], many=_PAGE_ROWS)
        else:
            found = self._db.execute(sql.PAGE_ROWS[table], many=_PAGE_ROWS, **_named("after", table, after))
        rows: Rows = []
        size = 0
        for row in found.dicts():
            rows.append(_with_booleans(table, row))
            size += sum(len(value) for value in row.values() if isinstance(value, str))
            if size > _PAGE_CHARS:
                break
        return rows, _place(table, rows[-1]) if rows else None

    @stored
    def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Stores a page of rows that are missing here or differ; how many. Parents of sessions are set later
        (`set_parents`)."""
        without = {"parent_id": None} if table == "session" else {}
        given = [dict(row) | without for row in rows]
        first, last = _place(table, given[0]), _place(table, given[-1])
        with self._db.transaction(durable=True):
            found = self._db.execute(
                sql.LIST_ROWS_WITHIN[table], **_named("first", table, first), **_named("last", table, last)
            )
            present = {_place(table, row): _with_booleans(table, row) | without for row in found.dicts()}
            changed = [row for row in given if present.get(_place(table, row)) != row]
            self._db.execute_many(sql.SAVE_ROW[table], changed)
            if table == "message":
                self._db.execute_many(sql.QUEUE_MESSAGE, [{"message": row["id"]} for row in changed])
        return len(changed)

    @stored
    def set_parents(self, parents: Mapping[str, str]) -> None:
        with self._db.transaction(durable=True):
            rows = [{"session": session, "parent": parent} for session, parent in parents.items()]
            self._db.execute_many(sql.SET_SESSION_PARENT, rows)

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
                return {one: RowDigest(counts[one], found.hexdigest()) for one, found in hashes.items()}
            for row, owner in zip(rows, self._owners(table, rows), strict=True):
                if owner not in hashes:
                    hashes[owner], counts[owner] = sha256(), 0
                hashes[owner].update(msgspec.json.encode(row, order="sorted"))
                counts[owner] += 1

    def _owners(self, table: str, rows: Rows) -> list[str]:
        """The session of each row; empty if it belongs to none."""
        if KEYS[table] == ("number",) and table not in NUMBERED:  # the number of a message
            numbers = [row["number"] for row in rows]
            found = self._db.execute(sql.LIST_MESSAGE_SESSIONS, numbers=to_json(numbers))
            owners = {row.number: row.session_id for row in found}
            return [owners.get(number, "") for number in numbers]
        columns = _OWNERS.get(table, ("session_id", "root_id"))
        return [next((row[column] for column in columns if row.get(column)), "") for row in rows]


def _place(table: str, row: Mapping[str, Any]) -> Place:
    return tuple(row[key] for key in KEYS[table])


def _named(start: str, table: str, place: Place) -> dict[str, Any]:
    return {f"{start}_{key}": value for key, value in zip(KEYS[table], place, strict=True)}


def _with_booleans(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as both databases take it: SQLite returns numbers for booleans."""
    for name in BOOLEANS.get(table, ()):
        if row[name] is not None:
            row[name] = bool(row[name])
    return row
