"""A SQLite file, the default: one connection, with its transactions and leases. Lives on the storage thread.

Transactions are begun and ended here explicitly: those that begin with a read fail at once when two processes
write.
"""

import os
import platform
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from crushpy.storage.database import Database, LeaseHolder, Rows, Statement, handwritten, session_busy
from crushpy.storage.location import Location
from crushpy.storage.schema_version import refuse_unfinished
from crushpy.storage.sqlite_errors import BusyRetry, explained
from crushpy.storage.sqlite_file import connect
from crushpy.storage.sqlite_search import SqliteFullText
from crushpy.util.processes import started_at, still_runs

T = TypeVar("T")
R = TypeVar("R")
REMOTE_LEASE_TIMEOUT_S = 15 * 60.0
"""After this time without a heartbeat a process on another machine counts as dead."""


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
        self._raw = connect(location, self._retry)
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


_MINE = "process = :process AND host = :host"
_RENEW = handwritten(f"UPDATE lease SET heartbeat = :now WHERE session_id = :session AND {_MINE}")  # noqa: S608
_MOVE = handwritten("UPDATE lease SET session_id = :child WHERE session_id = :session")
_FIND = handwritten("SELECT process, started, host, heartbeat FROM lease WHERE session_id = :session")
_SAVE = handwritten(
    "INSERT OR REPLACE INTO lease (session_id, process, started, host, heartbeat) "
    "VALUES (:session, :process, :started, :host, :now)"
)
_DELETE = handwritten(f"DELETE FROM lease WHERE session_id = :session AND {_MINE}")  # noqa: S608


class SqliteLeases(LeaseHolder):
    """A row names the process that may write to a session. The row of a dead process is replaced."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._me = {"process": os.getpid(), "started": started_at(os.getpid()), "host": platform.node()}
        self._held: set[str] = set()
        """Sessions this process acquired and did not release."""

    def acquire(self, session_id: str) -> bool:
        with self._db.transaction():
            acquired = self._acquire(session_id)
        self._held.add(session_id)
        return acquired

    def renew(self, session_id: str) -> None:
        if session_id not in self._held:
            return
        if not self._db.execute(_RENEW, **self._me, session=session_id, now=time.time()).rowcount:
            self._acquire(session_id)  # another process took it over; raises while that one is alive

    def renew_all(self) -> float | None:
        """Others see by the process itself whether it is alive."""

    def move(self, parent_id: str, child_id: str) -> None:
        self.renew(parent_id)
        self._db.execute(_MOVE, session=parent_id, child=child_id)
        if parent_id in self._held:
            self._held.add(child_id)

    def _acquire(self, session_id: str) -> bool:
        row = next(self._db.execute(_FIND, session=session_id).dicts(), None)
        mine = row is not None and all(row[name] == value for name, value in self._me.items())
        if row is not None and not mine and _is_alive(row):
            host = "" if row["host"] == platform.node() else row["host"]
            raise session_busy(session_id, row["process"], host)
        self._db.execute(_SAVE, session=session_id, now=time.time(), **self._me)
        return not mine

    def release(self, session_id: str) -> None:
        with self._db.transaction():
            self._db.execute(_DELETE, **self._me, session=session_id)
        self._held.discard(session_id)

    def release_all(self) -> None:
        with self._db.transaction():
            self._db.execute_many(_DELETE, [{**self._me, "session": session} for session in self._held])
        self._held.clear()


def _is_alive(row: Mapping[str, Any]) -> bool:
    if row["host"] != platform.node():
        return time.time() - row["heartbeat"] < REMOTE_LEASE_TIMEOUT_S
    return still_runs(row["process"], row["started"])
