"""One open connection to a file of SQLite. Lives on the storage thread.

Transactions are begun and ended here by hand: those that begin with a read fail at once when two processes
write.
"""

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crushpy.storage.connection import Connection, Dialect, Values
from crushpy.storage.rows import Rows
from crushpy.storage.sqlite.patience import Patience
from crushpy.util.freed_memory import LARGE, hand_back_freed

SPELLING = Dialect(
    name="sqlite",
    pairs_of="SELECT key, value FROM json_each({})",
    items_of="SELECT value FROM json_each({})",
    numbers_of="SELECT value FROM json_each({})",
    like="LIKE",
    day_of="date({}, 'unixepoch', 'localtime')",
    figure_of="sum(json_extract(message.usage, '$.{}'))",
    bytes_of="CAST({} AS BLOB)",
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
            rows = Rows(self._raw.execute(statement, dict(values)))
        else:
            rows = Rows(self._raw.executemany(statement, values))
        if any(map(_is_large, (values,) if isinstance(values, Mapping) else values)):
            self._let_go(statement, values if isinstance(values, Mapping) else values[0])
        return rows

    def _let_go(self, statement: str, names: Iterable[str]) -> None:
        """A statement is kept for the next time, with a copy of what it was given last."""
        self._raw.execute("SAVEPOINT let_go")  # whatever the statement does with nothing is taken back
        with suppress(sqlite3.IntegrityError):
            self._raw.execute(statement, dict.fromkeys(names))
        self._raw.execute("ROLLBACK TO let_go")
        self._raw.execute("RELEASE let_go")
        hand_back_freed()

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

    def as_text(self, data: bytes | bytearray) -> bytes | bytearray:
        return data

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


def _is_large(values: Mapping[str, Any]) -> bool:
    return any(isinstance(value, bytes | bytearray) and len(value) > LARGE for value in values.values())
