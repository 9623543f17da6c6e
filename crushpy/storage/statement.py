"""A statement as both databases spell it, and the rows that it returns. Light: knows neither library."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")
_PARAMETER = re.compile(r"(?<!:):(\w+)")


class Statement(Generic[R]):
    """SQL for SQLite with `:name` parameters, for PostgreSQL `%(name)s`. `row` is None for one column."""

    __slots__ = ("postgres", "row", "sqlite")

    def __init__(self, sqlite: str, postgres: str, row: type[R] | None) -> None:
        self.sqlite = sqlite
        self.postgres = postgres
        self.row = row


@cache
def handwritten(sql: str) -> Statement[Any]:
    """A statement with `:name` parameters that is not rendered from `queries/`, and has no row type."""
    return Statement(sql, _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")), None)


class DriverCursor(Protocol):
    """What the libraries of both databases return."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None: ...
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows(Generic[R]):
    """The rows of one execution: iterate over them, or use one of these methods, once."""

    def __init__(self, cursor: DriverCursor, row: type[R] | None) -> None:
        self._cursor = cursor
        self._row: Any = row

    @property
    def rowcount(self) -> int:
        """How many rows a write changed."""
        return self._cursor.rowcount

    def __iter__(self) -> Iterator[R]:
        row = self._row
        return (row(*values) for values in self._cursor)

    def all(self) -> list[R]:
        row = self._row
        return [row(*values) for values in self._cursor.fetchall()]

    def first(self) -> R | None:
        values = self._cursor.fetchone()
        self._cursor.close()  # a statement that is not read to its end holds a lock
        return self._row(*values) if values is not None else None

    def one(self) -> R:
        """The row that must exist."""
        row = self.first()
        if row is None:
            raise LookupError("no row was found")
        return row

    def scalar(self) -> Any:
        """The first value of the first row; None if there is no row."""
        values = self._cursor.fetchone()
        self._cursor.close()
        return values[0] if values is not None else None

    def scalars(self) -> list[Any]:
        """The first value of each row."""
        return [values[0] for values in self._cursor.fetchall()]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by the names of its columns."""
        names = [column[0] for column in self._cursor.description or ()]
        return (dict(zip(names, values, strict=True)) for values in self._cursor)
