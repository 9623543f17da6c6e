"""What a statement gives: rows whose columns are attributes. Light; the same for every kind of database."""

from collections.abc import Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol


class Row(tuple[Any, ...]):
    """The values of a row, in order; each is also an attribute with the name of its column."""

    __slots__ = ()
    columns: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self.columns, self, strict=True))


class DriverCursor(Protocol):
    """What the databases' own libraries give back."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None: ...
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows:
    """The rows of one statement: to be walked through, or taken in one of these ways, once."""

    def __init__(self, cursor: DriverCursor) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """How many rows a write touched."""
        return self._cursor.rowcount

    def __iter__(self) -> Iterator[Row]:
        return map(self._type(), self._cursor)

    def all(self) -> list[Row]:
        return list(map(self._type(), self._cursor.fetchall()))

    def first(self) -> Row | None:
        values = self._cursor.fetchone()
        row = self._type()(values) if values is not None else None
        self._cursor.close()  # a statement that is read to its end holds no lock
        return row

    def one(self) -> Row:
        """The row that must be there."""
        row = self.first()
        if row is None:
            raise LookupError("no row was found")
        return row

    def scalar(self) -> Any:
        """The first value of the first row; None where there is no row."""
        row = self.first()
        return row[0] if row is not None else None

    def scalars(self) -> list[Any]:
        """The first value of each row."""
        return [values[0] for values in self._cursor.fetchall()]

    def _type(self) -> type[Row]:
        return _row_type(tuple(column[0] for column in self._cursor.description or ()))


@cache
def _row_type(columns: tuple[str, ...]) -> type[Row]:
    places = {name: property(itemgetter(place)) for place, name in enumerate(columns)}
    return type("Row", (Row,), {"__slots__": (), "columns": columns, **places})
