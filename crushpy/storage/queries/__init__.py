"""The statements of storage, as expressions over `tables.py`, grouped by subject.

`bin/compile-sql` renders each public statement of these modules for both databases into `generated/`; nothing
imports them at run time. A value is `p("name")`; a constant is written in place.
"""

from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    Executable,
    Float,
    Integer,
    Text,
    bindparam,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import BindTyping
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

MODULES = ("session_queries", "message_queries", "record_queries", "fleet_queries")
SERVER_MODULES = ("fleet_queries",)
"""Those whose statements a file never executes."""
DIALECTS = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": postgresql.dialect(paramstyle="named"),
}
DIALECTS["postgresql"].bind_typing = BindTyping.NONE  # psycopg sends the types


class Forms(NamedTuple):
    """A statement that the databases spell differently, or that only a server needs."""

    sqlite: Executable | None
    postgresql: Executable


def p(name: str, type_: Any = Text) -> BindParameter[Any]:
    return bindparam(name, type_=type_() if isinstance(type_, type) else type_)


def limited(statement: Any, name: str = "many") -> Any:
    """`limit()` would add an OFFSET without a name."""
    return statement.suffix_with(text(f"LIMIT :{name}"))


def next_number(column: Any, condition: Any) -> Any:
    """One more than the largest number among some rows: 1, 2, 3, ..."""
    return select(func.coalesce(func.max(column), 0) + 1).where(condition).scalar_subquery()


def upsert(
    table: Any,
    *keys: str,
    columns: tuple[str, ...] = (),
    returning: Any = None,
    source: Any = None,
    **computed: Any,
) -> Forms:
    """Inserts a row, or the rows of the query `source`, or replaces the columns (or those given) of the one
    with the same key. Columns that are `computed` are not parameters."""

    def form(insert: Any) -> Any:
        statement = insert(table).values(computed) if computed else insert(table)
        if source is not None:
            statement = statement.from_select([column.name for column in statement.table.columns], source)
        names = columns or [column.name for column in statement.table.columns if column.name not in keys]
        statement = statement.on_conflict_do_update(
            index_elements=list(keys), set_={name: statement.excluded[name] for name in names}
        )
        return statement if returning is None else statement.returning(returning)

    return Forms(form(sqlite.insert), form(postgresql.insert))


def insert_or_ignore(table: Any, columns: list[str] | None = None, source: Any = None) -> Forms:
    """Inserts a row, or the rows of a query, except those that exist."""
    inserts = [insert(table) for insert in (sqlite.insert, postgresql.insert)]
    if source is not None:
        inserts = [insert.from_select(columns, source) for insert in inserts]
    return Forms(*(insert.on_conflict_do_nothing() for insert in inserts))


def row(name: str, statement: Any, **defaults: Any) -> Any:
    """Gives the row type of a statement its name; otherwise it is that of the statement or of the table.

    `defaults` are for code that makes such a row."""
    return statement.execution_options(row=name, defaults=defaults)


def read(value: type, table: Any) -> Any:
    """Selects the columns of a table with the names of the fields of `value`: its rows are such values."""
    columns = [getattr(table, name) for name in value.__struct_encode_fields__]
    return select(*columns).execution_options(row=value)


class _Spelled(FunctionElement):
    """An expression that the databases spell differently, with places for its arguments."""

    inherit_cache = False

    def __init__(self, kind: Any, sqlite_form: str, postgresql_form: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.type = kind
        self.forms = {"sqlite": sqlite_form, "postgresql": postgresql_form}


@compiles(_Spelled)
def _(element: Any, compiler: Any, **options: Any) -> str:
    return element.forms[compiler.dialect.name].format(
        *(compiler.process(argument, **options) for argument in element.clauses)
    )


def now() -> ClauseElement:
    """Seconds since the epoch by the clock of the database."""
    return _Spelled(
        Float(), "((julianday('now') - 2440587.5) * 86400.0)", "extract(epoch FROM clock_timestamp())"
    )


def new_token() -> ClauseElement:
    """A fencing token; on a server one that is larger than all before it."""
    return _Spelled(Integer(), "random()", "nextval('lease_token')")


_EACH = "SELECT value FROM json_each({0})"
_EACH_TEXT = "jsonb_array_elements_text(CAST({0} AS jsonb))"


def is_one_of(column: Any, name: str) -> ClauseElement:
    """`column IN (...)` for a list of texts, which is one JSON parameter."""
    return column.op("IN")(_Spelled(Text(), f"({_EACH})", f"(SELECT {_EACH_TEXT})", p(name)))


def is_one_of_numbers(column: Any) -> ClauseElement:
    form = f"(SELECT CAST({_EACH_TEXT} AS bigint))"
    return column.op("IN")(_Spelled(Text(), f"({_EACH})", form, p("numbers")))


def json_figure(column: Any, name: str) -> ClauseElement:
    """A number in a JSON object."""
    form = f"CAST(CAST({{0}} AS jsonb) ->> '{name}' AS double precision)"
    return _Spelled(Float(), f"json_extract({{0}}, '$.{name}')", form, column)


def quarter_hour(moment: Any) -> ClauseElement:
    """A moment in units of fifteen minutes: the offset of every time zone is a multiple of it."""
    forms = "CAST({0} / 900 AS INTEGER)", "CAST(floor({0} / 900) AS bigint)"
    return _Spelled(Integer(), *forms, moment)


@compiles(BindParameter)
def _(element: Any, compiler: Any, **options: Any) -> str:
    """A constant in an expression is written into the statement: every parameter has a name of ours."""
    if element.unique and element.value is not None:
        values = element.value if element.expanding else [element.value]
        spelled = ", ".join(compiler.render_literal_value(value, element.type) for value in values)
        return f"({spelled})" if element.expanding else spelled
    return compiler.visit_bindparam(element, **options)
