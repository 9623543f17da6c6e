"""One open connection to a file of SQLite. Lives on the storage thread.

SQLAlchemy builds and caches the statements; transactions are begun and ended here by hand, because its
own begin with a read and fail at once when two processes write.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import CursorResult, Executable, create_engine
from sqlalchemy.pool import StaticPool

from crushpy.storage.connection import Connection, Dialect, Values
from crushpy.storage.sqlite.patience import patiently

SPELLING = Dialect(
    pairs_of="SELECT key, value FROM json_each({})",
    items_of="SELECT value FROM json_each({})",
    like="LIKE",
    day_of="date({}, 'unixepoch', 'localtime')",
    figure_of="sum(json_extract(message.usage, '$.{}'))",
)


class SqliteConnection(Connection):
    dialect = SPELLING

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self.place = str(file)
        self._raw = connection
        self._durable = False
        self._engine = create_engine(
            "sqlite://",
            creator=lambda: connection,
            poolclass=StaticPool,
            pool_reset_on_return=None,  # it would touch the connection from the garbage collector's thread
            isolation_level="AUTOCOMMIT",
        )
        self._connection = self._engine.connect()

    def execute(self, statement: Executable, values: Values = None) -> CursorResult[Any]:
        """Runs one statement; a single one waits its turn, a transaction has it already."""
        if self._raw.in_transaction:
            return self._connection.execute(statement, values)
        return patiently(lambda: self._connection.execute(statement, values))

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        """Nobody else writes anything meanwhile, to any conversation."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        patiently(lambda: self._raw.execute("BEGIN IMMEDIATE"))
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise

    def numbering(self, table: str) -> None:
        """Nobody else writes anyway."""

    @contextmanager
    def overwriting(self) -> Generator[None]:
        self._raw.execute("PRAGMA secure_delete = ON")
        try:
            yield
        finally:
            self._raw.execute("PRAGMA secure_delete = OFF")

    def day(self, moment: str) -> str:
        return moment

    def check(self) -> list[str]:
        try:
            problems = [str(row[0]) for row in self._raw.execute("PRAGMA integrity_check")]
            strays = self._raw.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.DatabaseError as fault:  # too broken to be checked to the end
            return [str(fault)]
        problems = [] if problems == ["ok"] else problems
        return problems + [f"table {row[0]}: row {row[1]} points at a missing {row[2]}" for row in strays]

    def count_on(self, table: str) -> None:
        """A number is always one more than the largest."""

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()
        self._raw.close()
