"""One open connection to a file of SQLite. Lives on the storage thread.

Transactions are begun and ended here by hand: those that begin with a read fail at once when two processes
write.
"""

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType

from crushpy.storage.connection import Connection, Dialect, Values
from crushpy.storage.rows import Rows
from crushpy.storage.sqlite.patience import Patience

SPELLING = Dialect(
    name="sqlite",
    pairs_of="SELECT key, value FROM json_each({})",
    items_of="SELECT value FROM json_each({})",
    numbers_of="SELECT value FROM json_each({})",
    like="LIKE",
    day_of="date({}, 'unixepoch', 'localtime')",
    figure_of="sum(json_extract(message.usage, '$.{}'))",
    locking="",
)


class SqliteConnection(Connection):
    dialect = SPELLING

    def __init__(self, connection: sqlite3.Connection, file: Path, patience: Patience) -> None:
        self.place = str(file)
        self._raw = connection
        self._patience = patience
        self._durable = False

    def execute(self, statement: str, values: Values = MappingProxyType({})) -> Rows:
        """Runs one statement; a single one waits its turn, a transaction has it already."""
        if self._raw.in_transaction:
            return self._run(statement, values)
        return self._patience(lambda: self._run(statement, values))

    def _run(self, statement: str, values: Values) -> Rows:
        if isinstance(values, Mapping):
            return Rows(self._raw.execute(statement, dict(values)))
        return Rows(self._raw.executemany(statement, values))

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        """Nobody else writes anything meanwhile, to any conversation."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._patience(lambda: self._raw.execute("BEGIN IMMEDIATE"))
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise

    def briefly(self) -> AbstractContextManager[None]:
        return self._patience.briefly()

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
        self._raw.close()
