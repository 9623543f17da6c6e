"""Statements that SQLAlchemy builds from the tables, as SQL for a connection: for what is seldom done.

Importing it loads SQLModel; what every start does is written as SQL where it is used.
"""

from typing import Any

from sqlalchemy import ClauseElement
from sqlalchemy import Dialect as Compiler
from sqlalchemy.dialects import postgresql, sqlite

from crushpy.storage.connection import Connection
from crushpy.storage.rows import Rows

_COMPILERS: dict[str, Compiler] = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgres": postgresql.dialect(paramstyle="named"),
}


def run_built(connection: Connection, statement: ClauseElement) -> Rows:
    """Has SQLAlchemy spell a statement with the values in it, and runs that like any other."""
    compiler = _COMPILERS[connection.dialect.name]
    built: Any = statement.compile(dialect=compiler, compile_kwargs={"render_postcompile": True})
    return connection.execute(str(built), built.params)
