"""The statements of storage, as expressions over `tables.py`, grouped by subject.

`bin/compile-sql` renders each public statement of these modules for both databases into `generated/`; nothing
imports them at run time. A value is `p("name")`; a constant is written in place.
"""

from typing import Any, NamedTuple

from sqlalchemy import BindParameter, ClauseElement, Executable, Float, Integer, Text, bindparam, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import BindTyping
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

MODULES = (
    "session_queries",
    "message_queries",
    "record_queries",
    "index_queries",
)
DIALECTS = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": postgresql.dialect(paramstyle="pyformat"),
}
DIALECTS["postgresql"].bind_typing = BindTyping.NONE  # psycopg sends the types


class Forms(NamedTuple):
    """A statement that the databases spell differently."""

    sqlite: Executable
    postgresql: Executable


def p(name: str, type_: Any = Text) -> BindParameter[Any]:
    """A named parameter."""
    return bindparam(name, type_=type_() if isinstance(type_, type) else type_)


def limited(statement: Any, name: str = "many") -> Any:
    """`limit()` would add an OFFSET without a name."""
    return statement.suffix_with(text(f"LIMIT :{name}"))


def upsert(table: Any, *keys: str, columns: tuple[str, ...] = ()) -> Forms:
    """Inserts a row, or replaces the columns (or those given) of the one with the same key."""

    def form(insert: Any) -> Any:
        statement = insert(table)
        names = columns or [one.name for one in statement.table.columns if one.name not in keys]
        return statement.on_conflict_do_update(
            index_elements=list(keys), set_={name: statement.excluded[name] for name in names}
        )

    return Forms(form(sqlite.insert), form(postgresql.insert))


def insert_or_ignore(table: Any, columns: list[str] | None = None, source: Any = None) -> Forms:
    """Inserts a row, or the rows of a query, except those that exist."""
    inserts = [insert(table) for insert in (sqlite.insert, postgresql.insert)]
    if source is not None:
        inserts = [one.from_select(columns, source) for one in inserts]
    return Forms(*(one.on_conflict_do_nothing() for one in inserts))


def row(name: str, statement: Any) -> Any:
    """Gives the row type of a statement its name; otherwise it is that of the statement or of the table."""
    return statement.execution_options(row=name)


def is_one_of(column: Any, name: str) -> ClauseElement:
    """`column IN (...)` for a list of texts, which is one JSON parameter."""
    return column.op("IN")(_JsonTexts(p(name)))


def is_one_of_numbers(column: Any, name: str = "numbers") -> ClauseElement:
    return column.op("IN")(_JsonNumbers(p(name)))


class _JsonTexts(FunctionElement):
    inherit_cache = True
    type = Text()


class _JsonNumbers(_JsonTexts):
    inherit_cache = True


class json_figure(FunctionElement):  # noqa: N801  # reads like a function
    """A number in a JSON object: `json_figure(column, "name")`."""

    inherit_cache = True
    type = Float()


class quarter_hour(FunctionElement):  # noqa: N801
    """A moment in units of fifteen minutes: the offset of every time zone is a multiple of it."""

    inherit_cache = True
    type = Integer()


@compiles(quarter_hour, "sqlite")
def _(element: Any, compiler: Any, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} / 900 AS INTEGER)"


@compiles(quarter_hour, "postgresql")
def _(element: Any, compiler: Any, **options: Any) -> str:
    return f"CAST(floor({compiler.process(element.clauses, **options)} / 900) AS bigint)"


@compiles(_JsonTexts, "sqlite")
def _(element: Any, compiler: Any, **options: Any) -> str:
    values = compiler.process(element.clauses, **options)
    return f"(SELECT value FROM json_each({values}))"  # noqa: S608


@compiles(_JsonTexts, "postgresql")
def _(element: Any, compiler: Any, **options: Any) -> str:
    return (
        f"(SELECT jsonb_array_elements_text(CAST({compiler.process(element.clauses, **options)} AS jsonb)))"
    )


@compiles(_JsonNumbers, "postgresql")
def _(element: Any, compiler: Any, **options: Any) -> str:
    values = f"jsonb_array_elements_text(CAST({compiler.process(element.clauses, **options)} AS jsonb))"
    return f"(SELECT CAST({values} AS bigint))"


@compiles(json_figure, "sqlite")
def _(element: Any, compiler: Any, **options: Any) -> str:
    column, name = element.clauses
    return f"json_extract({compiler.process(column, **options)}, '$.{name.value}')"


@compiles(json_figure, "postgresql")
def _(element: Any, compiler: Any, **options: Any) -> str:
    column, name = element.clauses
    return (
        f"CAST(CAST({compiler.process(column, **options)} AS jsonb) ->> '{name.value}' AS double precision)"
    )


@compiles(BindParameter)
def _(element: Any, compiler: Any, **options: Any) -> str:
    """A constant in an expression is written into the statement: every parameter has a name of ours."""
    if element.unique and element.value is not None:
        values = element.value if element.expanding else [element.value]
        spelled = ", ".join(compiler.render_literal_value(value, element.type) for value in values)
        return f"({spelled})" if element.expanding else spelled
    return compiler.visit_bindparam(element, **options)
