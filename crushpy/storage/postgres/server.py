"""What a server must be like, and what `crushpy doctor` asks it."""

import time
from typing import TYPE_CHECKING, Any

from crushpy.storage.postgres.address import ServerAddress
from crushpy.storage.postgres.migrations import NEWEST, finds_parts_by_index, schema_version, unfinished_copy
from crushpy.storage.records import StorageError
from crushpy.storage.server_report import ServerReport

if TYPE_CHECKING:
    import psycopg

OLDEST = 14
NO_LIBRARY = "Install it with `pip install 'crushpy[postgres]'`."
_ASK = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
    current_setting('server_encoding'), current_user::text,
    CASE WHEN to_regnamespace('crushpy') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege('crushpy', 'CREATE') END,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
    coalesce((SELECT bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
        WHERE relkind = 'r' AND relnamespace = to_regnamespace('crushpy')), true)
"""


def examine(address: ServerAddress) -> ServerReport:
    """Asks a server how it is. `StorageError` where that cannot be. Changes nothing."""
    try:
        import psycopg
    except ImportError as error:
        raise StorageError(f"psycopg is not here: {error}", NO_LIBRARY) from error
    from crushpy.storage.postgres.faults import explain

    try:
        with psycopg.connect(address.url, autocommit=True, connect_timeout=10) as connection:
            return _report(connection, psycopg.__version__)
    except psycopg.Error as fault:
        raise explain(address, fault) from fault


def _report(connection: "psycopg.Connection[Any]", library: str) -> ServerReport:
    times: list[float] = []
    row: Any = None
    for _ in range(3):
        start = time.perf_counter()
        row = connection.execute(_ASK).fetchone()
        times.append(time.perf_counter() - start)
    version, number, encoding, role, may_create, read_only, may_write = row
    stored = schema_version(connection)
    count: Any = None
    unfinished = ""
    if stored and may_write:
        count = connection.execute("SELECT count(*) FROM crushpy.conversation").fetchone()
        unfinished = unfinished_copy(connection) or ""
    return ServerReport(
        version=version,
        number=number,
        oldest=OLDEST,
        library=library,
        encoding=encoding,
        role=role,
        may_create=may_create,
        read_only=read_only,
        schema_version=stored,
        newest=NEWEST,
        may_write=may_write,
        trigrams=finds_parts_by_index(connection),
        unfinished=unfinished,
        conversations=count[0] if count else 0,
        latency=min(times),
    )


def refuse_unsuited(connection: "psycopg.Connection[Any]", place: str) -> None:
    """Raises where nothing can be stored on this server. Changes nothing."""
    number = connection.info.server_version
    encoding = connection.info.parameter_status("server_encoding")
    if number < OLDEST * 10_000:
        raise StorageError(
            f"{place} is PostgreSQL {number // 10_000}; crushpy needs {OLDEST} or newer", "Update the server."
        )
    if encoding != "UTF8":
        raise StorageError(
            f"{place} stores text as {encoding}, which cannot hold every character",
            "Make a database for crushpy: createdb --encoding=UTF8 --template=template0 NAME",
        )
