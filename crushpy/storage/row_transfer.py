"""Rows as they are, for copying a database into another kind. Lives on the storage thread.

Not copied: leases, the full-text index (it grows anew), and work on the database itself.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import Table, func, insert, select, tuple_, update
from sqlmodel import SQLModel

from crushpy.messages import Data
from crushpy.storage.connection import Connection
from crushpy.storage.search_index import SearchIndex
from crushpy.storage.tables import sessions

_NOT_COPIED = frozenset({"lease", "index_queue", "chore"})
PAGE = 200
_PAGE_CHARS = 4_000_000

Place = tuple[Any, ...]
"""The key of a row."""


class TableDigest(Data, frozen=True):
    """What a table holds, as far as two can be compared."""

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
        return self._connection.execute(select(func.count()).select_from(_table(name))).scalar_one()

    def session_ids(self) -> set[str]:
        return set(self._connection.execute(select(sessions.c.id)).scalars())

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
        for row in self._connection.execute(statement).mappings():
            rows.append(dict(row))
            size += sum(len(value) for value in row.values() if isinstance(value, str))
            if size > _PAGE_CHARS:
                break
        return rows, tuple(rows[-1][key.name] for key in keys) if rows else None

    def add(self, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Stores those that are not there yet; how many. Parents of sessions come later (`set_parents`)."""
        table = _table(name)
        keys = list(table.primary_key)
        places = [tuple(row[key.name] for key in keys) for row in rows]
        with self._connection.transaction(durable=True):
            known = tuple_(*keys).in_(places) if len(keys) > 1 else keys[0].in_([one for (one,) in places])
            there = {tuple(found) for found in self._connection.execute(select(*keys).where(known))}
            fresh = [dict(row) for row, place in zip(rows, places, strict=True) if place not in there]
            if name == sessions.name:
                fresh = [row | {"parent_id": None} for row in fresh]
            if fresh:
                self._connection.execute(insert(table), fresh)
            if name == "message" and fresh:
                self._index.queue([str(row["id"]) for row in fresh])
        return len(fresh)

    def set_parents(self, parents: Mapping[str, str]) -> None:
        with self._connection.transaction(durable=True):
            for session, parent in parents.items():
                self._connection.execute(
                    update(sessions).where(sessions.c.id == session), {"parent_id": parent}
                )

    def finish(self) -> None:
        """The next row of each table gets a number of its own."""
        for table in SQLModel.metadata.sorted_tables:
            if [key.name for key in table.primary_key] == ["number"] and table.name not in _NOT_COPIED:
                self._connection.count_on(table.name)

    def digest(self, name: str) -> TableDigest:
        found = sha256()
        count = 0
        place: Place | None = None
        while True:
            rows, place = self.page(name, place)
            if not rows:
                return TableDigest(count, found.hexdigest())
            for row in rows:
                found.update(msgspec.json.encode(row, order="sorted"))
            count += len(rows)


def _table(name: str) -> Table:
    return SQLModel.metadata.tables[name]
