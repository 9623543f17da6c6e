"""What every kind of database offers to the tables: statements, transactions, and its own spelling of SQL.

A statement is SQL with `:name` for each value. Lives on the storage thread. `sqlite` and `postgres` are the
kinds there are; nothing else knows which it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from crushpy.core.messages import Data
from crushpy.storage.rows import Rows

Values = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Of one statement; or of each time that it is run."""


class Dialect(Data, frozen=True):
    """What the kinds spell differently, as pieces of SQL. `{}` stands for a value or a column."""

    name: str
    pairs_of: str
    """Keys and numbers of a JSON object, as rows."""
    items_of: str
    """The texts of a JSON list, as rows."""
    numbers_of: str
    """The whole numbers of a JSON list, as rows."""
    like: str
    """The operator that does not mind the case of ASCII letters."""
    day_of: str
    """A moment as something that `Connection.day` makes a local day of."""
    figure_of: str
    """A number out of the JSON of `message.usage`, by its name."""
    bytes_of: str
    """A text as bytes, where it need not be decoded: one wide letter would widen all others."""
    locking: str
    """At the end of a query: nobody else changes these rows until the transaction is over."""


class Connection(ABC):
    dialect: Dialect
    place: str
    """How errors and people name the database; without passwords."""

    @abstractmethod
    def execute(self, statement: str, values: Values = MappingProxyType({})) -> Rows:
        """Runs one statement; where there are several sets of values, once with each."""

    @abstractmethod
    def transaction(self, *, durable: bool = False, session: str = "") -> AbstractContextManager[None]:
        """Runs its body as one write: all of it or nothing. A `durable` one also survives a power cut.

        Nobody else writes to the conversation of `session` meanwhile, and it must not have been taken over
        from this process.
        """

    def briefly(self) -> AbstractContextManager[None]:
        """What its body wants to write is written at once, or `CannotWriteNow` says that others are at it."""
        return nullcontext()

    @abstractmethod
    def numbering(self, table: str) -> None:
        """Inside a transaction: until its end nobody else adds to a table whose numbers are a clock."""

    @abstractmethod
    def overwriting(self) -> AbstractContextManager[None]:
        """What its body deletes is overwritten, where the database can, not only unlinked."""

    @abstractmethod
    def as_text(self, data: bytes | bytearray) -> str | bytes | bytearray:
        """Encoded text as a value that a statement casts to text, for a column that must not be NULL."""

    @abstractmethod
    def day(self, moment: Any) -> str:
        """What `day_of` gave as a day of local time: 2026-01-31."""

    @abstractmethod
    def check(self) -> list[str]:
        """What is wrong with the database, one line each."""

    @abstractmethod
    def count_on(self, table: str) -> None:
        """Rows of a table were stored with their numbers: the next one gets a number behind them."""

    @abstractmethod
    def close(self) -> None: ...

    def insert(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Adds rows, all with the same columns."""
        if rows:
            self.execute(insertion(table, rows[0]), rows)

    def update(self, table: str, where: str, values: Mapping[str, Any], changes: Mapping[str, Any]) -> int:
        """Changes columns of the rows that `where`, with its values, finds; how many those were."""
        settings = ", ".join(f"{name} = :new_{name}" for name in changes)
        new = {f"new_{name}": value for name, value in changes.items()}
        statement = f"UPDATE {table} SET {settings} WHERE {where}"  # noqa: S608  # our own names
        return self.execute(statement, {**values, **new}).rowcount

    def replace(self, table: str, row: Mapping[str, Any], *keys: str) -> None:
        """Inserts a row in place of the one with the same key. Inside a transaction."""
        where = " AND ".join(f"{key} = :{key}" for key in keys)
        self.execute(f"DELETE FROM {table} WHERE {where}", {key: row[key] for key in keys})  # noqa: S608
        self.insert(table, row)


def insertion(table: str, columns: Iterable[str]) -> str:
    """The statement that adds a row of these columns; values have the columns' names."""
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"  # noqa: S608
