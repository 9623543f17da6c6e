"""One SQL statement for both databases.

A statement over our tables is an expression in `queries/`, which `bin/compile-sql` renders. SQL written by
hand, `Statement[Any](...)`, is for what cannot be such an expression: docs/storage.md lists it.
"""

from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")


class Statement(NamedTuple, Generic[R]):
    """SQL with `:name` parameters. `row` is None for one column."""

    sql: str
    row: type[R] | None = None
    postgres: str = ""
    """If PostgreSQL spells it differently."""
