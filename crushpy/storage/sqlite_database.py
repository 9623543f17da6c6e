"""A SQLite file, the default: one connection, with its transactions and leases. Lives on the storage thread.

Transactions are begun and ended here explicitly: those that begin with a read fail at once when two processes
write.
"""

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from crushpy.security.sanitize import encodable
from crushpy.storage.database import Database, Leases, Rows, Statement
from crushpy.storage.location import Location
from crushpy.storage.records import DatabaseLost
from crushpy.storage.sqlite_file import BusyRetry, error_name, explained, is_intact, open_sqlite
from crushpy.storage.sqlite_search import SqliteFullText

T = TypeVar("T")
R = TypeVar("R")


def open_file(location: Location) -> "SqliteDatabase":
    with explained(location.file):
        return SqliteDatabase(location)


def _lost(place: str, happened: str) -> DatabaseLost:
    hint = "Restart crushpy to use the file as it is now."
    return DatabaseLost(f"the database {place} {happened} while it was in use", hint)


class SqliteDatabase(Database):
    def __init__(self, location: Location) -> None:
        self.place = location.place
        self._file = location.file
        self._retry = BusyRetry(self.place, lambda text: location.notify(text))  # noqa: PLW0108  # it is set later
        self._raw = open_sqlite(location, self._retry)
        self._durable = False
        self._location = location
        location.known_state = location.read_state()
        self._data_version = self._read_data_version()
        self.leases = Leases(self, on_server=False)
        self.full_text = SqliteFullText(self)

    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]:
        """A single statement waits for other processes; a transaction has done that already."""
        try:
            if self._raw.in_transaction:
                return Rows(self._raw.execute(statement.sqlite, values), statement.row)
            before = self._raw.total_changes
            rows = self._retry(
                lambda: Rows(self._raw.execute(statement.sqlite, values), statement.row), waits=self.waits
            )
            if self._raw.total_changes != before:
                self._adopt_own_write()
            return rows
        except UnicodeEncodeError:
            return self.execute(statement, **encodable(values))

    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(statement, **row)

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        """No other process writes anything meanwhile, to any conversation."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._retry(lambda: self._raw.execute("BEGIN IMMEDIATE"), waits=self.waits)
        with self._raw:  # commits, or rolls back
            self.verify()
            if session:
                self.leases.confirm(session)
            yield
        self._adopt_own_write()

    def verify(self) -> None:
        known, state = self._location.known_state, self._location.read_state()
        if known is None or state == known:
            return
        if state is None:
            raise _lost(self.place, "was deleted")
        if state[:2] != known[:2]:
            raise _lost(self.place, "was replaced by another file")
        if known[-1] not in (0, state[-1]):
            raise _lost(self.place, "lost its write-ahead log, the file that ends with -wal,")
        if state[:-1] != known[:-1]:
            # While this store is open, only stores that write move the log into the file.
            by_others = self._data_version != (version := self._read_data_version())
            if not is_intact(self._file, set() if by_others else self.leases.tokens):
                raise _lost(self.place, "was overwritten or damaged")
            self._data_version = version
        self._location.known_state = state

    def _adopt_own_write(self) -> None:
        """After a write, with which SQLite may have moved the log into the file."""
        known, state = self._location.known_state, self._location.read_state()
        if known and state and state[:2] == known[:2] and known[-1] in (0, state[-1]):
            self._location.known_state = state

    def _read_data_version(self) -> int:
        """Changes with every commit of another connection."""
        return self._raw.execute("PRAGMA data_version").fetchone()[0]

    def run(self, job: Callable[[], T], asked: float) -> T:
        """Transactions wait for other processes by themselves."""
        with explained(self._file):
            return job()

    def _may_be_written_later(self, error: Exception) -> bool:
        if not isinstance(error, sqlite3.Error):
            return False
        return error_name(error).startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_FULL"))

    @contextmanager
    def secure_delete(self) -> Generator[None]:
        self._raw.execute("PRAGMA secure_delete = ON")
        try:
            yield
        finally:
            self._raw.execute("PRAGMA secure_delete = OFF")

    def check(self) -> list[str]:
        try:
            problems = [str(row[0]) for row in self._raw.execute("PRAGMA integrity_check")]
            orphans = self._raw.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.DatabaseError as error:  # too damaged to be checked completely
            return [str(error)]
        problems = [] if problems == ["ok"] else problems
        return problems + [f"table {row[0]}: row {row[1]} points at a missing {row[2]}" for row in orphans]

    def checkpoint(self) -> None:
        """Moves the log into the file."""
        self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._raw.close()
