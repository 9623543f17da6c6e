"""A SQLite file, the default: one connection, with its transactions and leases. Lives on the storage thread.

Transactions are begun and ended here explicitly: those that begin with a read fail at once when two processes
write.
"""

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from crushpy.storage.database import Database, Rows, Statement
from crushpy.storage.leases import SqliteLeases
from crushpy.storage.location import Location
from crushpy.storage.schema_version import refuse_unfinished
from crushpy.storage.sqlite_errors import BusyRetry, explained
from crushpy.storage.sqlite_file import open_sqlite
from crushpy.storage.sqlite_search import SqliteFullText

T = TypeVar("T")
R = TypeVar("R")


def open_file(location: Location) -> "SqliteDatabase":
    with explained(location.file):
        database = SqliteDatabase(location)
        try:
            refuse_unfinished(database, location)
        except BaseException:
            database.close()
            raise
        return database


class SqliteDatabase(Database):
    def __init__(self, location: Location) -> None:
        self.place = location.place
        self._file = location.file
        self._retry = BusyRetry(self.place, lambda text: location.notify(text))  # noqa: PLW0108  # it is set later
        self._raw = open_sqlite(location, self._retry)
        self._durable = False
        self.leases = SqliteLeases(self)
        self.full_text = SqliteFullText(self)

    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]:
        """A single statement waits for other processes; a transaction has done that already."""
        if self._raw.in_transaction:
            return Rows(self._raw.execute(statement.sqlite, values), statement.row)
        return self._retry(lambda: Rows(self._raw.execute(statement.sqlite, values), statement.row))

    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        self._raw.executemany(statement.sqlite, rows)

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        """No other process writes anything meanwhile, to any conversation."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._retry(lambda: self._raw.execute("BEGIN IMMEDIATE"))
        try:
            if session:
                self.leases.confirm(session)
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise

    def run(self, job: Callable[[], T], asked: float) -> T:
        """Transactions wait for other processes by themselves."""
        with explained(self._file):
            return job()

    def no_wait(self) -> AbstractContextManager[None]:
        return self._retry.no_wait()

    def lock_sequence(self, table: str) -> None:
        """A transaction locks the whole file."""

    def reset_sequence(self, table: str) -> None:
        """The next number is always one more than the largest."""

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

    def close(self) -> None:
        self._raw.close()
