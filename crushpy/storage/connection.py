"""What every kind of database offers to the tables: statements, transactions, and its own spelling of SQL.

Lives on the storage thread. `sqlite` and `postgres` are the kinds there are; nothing else knows which it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import CursorResult, Executable, Table, delete, insert

from crushpy.messages import Data

Values = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class Dialect(Data, frozen=True):
    """What the kinds spell differently, as pieces of SQL. `{}` stands for a value or a column."""

    pairs_of: str
    """Keys and numbers of a JSON object, as rows."""
    items_of: str
    """The texts of a JSON list, as rows."""
    like: str
    """The operator that does not mind the case of ASCII letters."""
    day_of: str
    """A moment as something that `Connection.day` makes a local day of."""
    figure_of: str
    """A number out of the JSON of `message.usage`, by its name."""


class Connection(ABC):
    dialect: Dialect
    place: str
    """How errors and people name the database; without passwords."""

    @abstractmethod
    def execute(self, statement: Executable, values: Values = None) -> CursorResult[Any]:
        """Runs one statement."""

    @abstractmethod
    def transaction(self, *, durable: bool = False, session: str = "") -> AbstractContextManager[None]:
        """Runs its body as one write: all of it or nothing. A `durable` one also survives a power cut.

        Nobody else writes to the conversation of `session` meanwhile, and it must not have been taken over
        from this process.
        """

    @abstractmethod
    def numbering(self, table: str) -> None:
        """Inside a transaction: until its end nobody else adds to a table whose numbers are a clock."""

    @abstractmethod
    def overwriting(self) -> AbstractContextManager[None]:
        """What its body deletes is overwritten, where the database can, not only unlinked."""

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

    def replace(self, table: Table, row: Mapping[str, Any]) -> None:
        """Inserts a row in place of the one with the same key. Inside a transaction."""
        self.execute(delete(table).where(*(key == row[key.name] for key in table.primary_key)))
        self.execute(insert(table), row)
