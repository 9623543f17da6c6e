"""Rows as they are, for copying a database into another kind. Lives on the storage thread.

Not copied: leases, the full-text index, which comes anew, and work on the database itself.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import Boolean, Table, func, select, tuple_, update
from sqlmodel import SQLModel

from crushpy.core.messages import Data
from crushpy.storage.built_statements import run_built
from crushpy.storage.connection import Connection
from crushpy.storage.rows import Row
from crushpy.storage.search_index import SearchIndex
from crushpy.storage.tables import messages, sessions

_NOT_COPIED = frozenset({"lease", "index_queue", "chore"})
PAGE = 200
_PAGE_CHARS = 4_000_000

Place = tuple[Any, ...]
"""The key of a row."""
_OWNERS = {sessions.name: ("id",), "boundary": ("child_id",), "conversation": ("tip_id",)}
"""The columns that name the session of a row, where they are not called as in the other tables."""


class RowDigest(Data, frozen=True):
    """What a table holds of one session, as far as two can be compared."""

    count: int
    hash: str


def copied_tables() -> list[str]:
    """In an order in which each row finds those it points at."""
    return [table.name for table in SQLModel.metadata.sorted_tables if table.name not in _NOT_COPIED]


class RowTransfer:
    def __init__(self, connection: Connection, index: SearchIndex) -> None:
        self._connection = connection
        self._index = index

    def count(self, name: str) -> int:
        return run_built(self._connection, select(func.count()).select_from(_table(name))).scalar()

    def session_ids(self) -> set[str]:
        return set(run_built(self._connection, select(sessions.c.id)).scalars())

    def page(self, name: str, after: Place | None) -> tuple[list[dict[str, Any]], Place | None]:
        """Some rows behind a place, in the order of their keys, and where the next page begins."""
        table = _table(name)
        keys = list(table.primary_key)
        statement = select(table).order_by(*keys).limit(PAGE)
        if after is not None:
            statement = statement.where(
                tuple_(*keys) > tuple_(*after) if len(keys) > 1 else keys[0] > after[0]
            )
        rows: list[dict[str, Any]] = []
        size = 0
        for row in (_as_defined(table, row) for row in run_built(self._connection, statement)):
            rows.append(row)
            size += sum(len(value) for value in row.values() if isinstance(value, str))
            if size > _PAGE_CHARS:
                break
        return rows, tuple(rows[-1][key.name] for key in keys) if rows else None

    def add(self, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Stores those that are not there yet, or are there otherwise; how many.

        Parents of sessions come later (`set_parents`).
        """
        table = _table(name)
        keys = list(table.primary_key)
        without = {"parent_id": None} if name == sessions.name else {}
        given = {tuple(row[key.name] for key in keys): dict(row) | without for row in rows}
        places = list(given)
        with self._connection.transaction(durable=True):
            known = tuple_(*keys).in_(places) if len(keys) > 1 else keys[0].in_([one for (one,) in places])
            found = run_built(self._connection, select(table).where(known))
            there = {
                tuple(row[key.name] for key in keys): row | without
                for row in (_as_defined(table, row) for row in found.all())
            }
            fresh = [row for place, row in given.items() if place not in there]
            self._connection.insert(table.name, *fresh)
            changed = [place for place in there if there[place] != given[place]]
            for place in changed:
                same = (key == value for key, value in zip(keys, place, strict=True))
                run_built(self._connection, update(table).where(*same).values(given[place]))
            if name == "message" and fresh:
                self._index.queue([str(row["id"]) for row in fresh])
        return len(fresh) + len(changed)

    def set_parents(self, parents: Mapping[str, str]) -> None:
        with self._connection.transaction(durable=True):
            rows = [{"session": session, "parent": parent} for session, parent in parents.items()]
            self._connection.execute("UPDATE session SET parent_id = :parent WHERE id = :session", rows)

    def count_on(self) -> None:
        """The next row of each table gets a number of its own."""
        for table in SQLModel.metadata.sorted_tables:
            if [key.name for key in table.primary_key] == ["number"] and not _follows_messages(table):
                self._connection.count_on(table.name)

    def digests(self, name: str) -> dict[str, RowDigest]:
        """What a table holds, session by session; under an empty name what belongs to none."""
        hashes: dict[str, Any] = {}
        counts: dict[str, int] = {}
        place: Place | None = None
        while True:
            rows, place = self.page(name, place)
            if not rows:
                return {one: RowDigest(counts[one], found.hexdigest()) for one, found in hashes.items()}
            for row, owner in zip(rows, self._owners(name, rows), strict=True):
                if owner not in hashes:
                    hashes[owner], counts[owner] = sha256(), 0
                hashes[owner].update(msgspec.json.encode(row, order="sorted"))
                counts[owner] += 1

    def _owners(self, name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """The session of each row; empty where it belongs to none."""
        if _follows_messages(_table(name)):
            numbers = [row["number"] for row in rows]
            found = run_built(
                self._connection,
                select(messages.c.number, messages.c.session_id).where(messages.c.number.in_(numbers)),
            )
            owners = {row.number: row.session_id for row in found}
            return [owners.get(number, "") for number in numbers]
        columns = _OWNERS.get(name, ("session_id", "root_id"))
        return [next((row[column] for column in columns if row.get(column)), "") for row in rows]


def _follows_messages(table: Table) -> bool:
    """Whether its rows have the numbers of messages, and none of their own."""
    return "number" in table.c and bool(table.c.number.foreign_keys)


def _as_defined(table: Table, row: Row) -> dict[str, Any]:
    """A row as every kind of database takes it: SQLite gives numbers for what is true or false."""
    values = row.as_dict()
    for column in table.columns:
        if isinstance(column.type, Boolean) and values[column.name] is not None:
            values[column.name] = bool(values[column.name])
    return values


def _table(name: str) -> Table:
    return SQLModel.metadata.tables[name]
