"""The server itself: its errors, what it must provide, its schema, and its state for `crushpy doctor`."""

import logging
import time
from typing import Any

import psycopg
from psycopg.rows import dict_row

from crushpy.storage.generated.ddl import POSTGRESQL, VERSION
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.postgres_search import FULL_TEXT_SCHEMA, TRIGRAM_INDEX, TRIGRAM_INDEX_NAME
from crushpy.storage.records import ServerReport, StorageError
from crushpy.storage.schema_version import OLD_VERSION, old_table_views, require_supported

log = logging.getLogger(__name__)
_HINTS = {
    "28": "Check the user and its password: PGPASSWORD, ~/.pgpass, or CRUSHPY_DATABASE_URL.",
    "3D": "Make the database first: `createdb NAME`.",
    "42501": "The role lacks a right: docs/storage.md lists those it needs.",
    "53100": "The server's disk is full. What was stored before is safe.",
    "53300": "The server accepts no more connections: raise its max_connections, or end some.",
    "55P03": "Another program has been writing to this conversation for over a minute.",
    "57014": "The server ended the statement: its statement_timeout is too short.",
    "25006": "The server is read-only: name its primary in database_url.",
}
_UNREACHABLE = "Check that the server runs and can be reached: `crushpy doctor`."
OTHER_HINT = "Run `crushpy doctor` to check the database."
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
"""The server ended the connection, is starting or shutting down, or we were idle for too long."""
_COLLISIONS = ("40001", "40P01")
"""Two transactions collided; one of them is repeated."""


class Interrupted(Exception):
    """A job changed nothing and may be repeated: on a new connection if `lost`."""

    def __init__(self, cause: Exception, *, lost: bool) -> None:
        super().__init__(str(cause))
        self.lost = lost


def is_lost(error: psycopg.Error, closed: bool) -> bool:
    state = error.sqlstate or ""
    return state.startswith(_LOST) or (closed and isinstance(error, psycopg.OperationalError))


def is_collision(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_COLLISIONS)


def may_recover(error: psycopg.Error) -> bool:
    """Of a connection that was refused: whether waiting may help."""
    state = error.sqlstate or ""
    if state:
        return state.startswith((*_LOST, "53300"))
    return "password" not in str(error) and "no pg_hba.conf entry" not in str(error)


def explain(address: ServerAddress, error: psycopg.Error) -> StorageError:
    """The error for people."""
    state = error.sqlstate or ""
    said = address.without_secrets(str(error)).strip()
    if not state and isinstance(error, psycopg.OperationalError):
        refused = "password" in said or "authentication" in said or "no pg_hba" in said
        hint = _HINTS["28"] if refused else _HINTS["3D"] if "does not exist" in said else _UNREACHABLE
    else:
        hint = next((hint for start, hint in _HINTS.items() if state.startswith(start)), OTHER_HINT)
    one_line = "; ".join(dict.fromkeys(line.strip() for line in said.splitlines() if line.strip()))
    return StorageError(f"cannot use the database {address.shown}: {one_line}", hint)


# --- its state

OLDEST_SERVER = 14
_STATE_QUERY = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
    current_setting('server_encoding') AS encoding, current_user::text AS role,
    CASE WHEN to_regnamespace('crushpy') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege('crushpy', 'CREATE') END AS may_create,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS read_only,
    coalesce((SELECT bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
        WHERE relkind = 'r' AND relnamespace = to_regnamespace('crushpy')), true) AS may_write
"""


def query_server_state(address: ServerAddress) -> ServerReport:
    """Asks a server for its state. `StorageError` if it cannot be asked. Changes nothing."""
    try:
        with psycopg.connect(address.url, autocommit=True, connect_timeout=10) as connection:
            return _report(connection)
    except psycopg.Error as error:
        raise explain(address, error) from error


def _report(connection: psycopg.Connection[Any]) -> ServerReport:
    times: list[float] = []
    state: dict[str, Any] | None = None
    for _ in range(3):
        start = time.perf_counter()
        state = connection.cursor(row_factory=dict_row).execute(_STATE_QUERY).fetchone()
        times.append(time.perf_counter() - start)
    assert state is not None
    stored = read_version(connection) or 0
    conversations, unfinished = 0, ""
    if stored == VERSION and state["may_write"]:
        query = (
            "SELECT (SELECT count(*) FROM crushpy.conversation), "
            "coalesce((SELECT state FROM crushpy.maintenance WHERE name = 'copy'), '')"
        )
        [(conversations, unfinished)] = connection.execute(query).fetchall()
    return ServerReport(
        **state,
        oldest=OLDEST_SERVER,
        library=psycopg.__version__,
        schema_version=stored,
        newest=VERSION,
        trigrams=_state(connection)[-1],
        unfinished=unfinished,
        conversations=conversations,
        latency=min(times),
    )


def refuse_unsuitable(connection: psycopg.Connection[Any], place: str) -> None:
    """Raises if this server cannot be used. Changes nothing."""
    number = connection.info.server_version
    encoding = connection.info.parameter_status("server_encoding")
    if number < OLDEST_SERVER * 10_000:
        raise StorageError(
            f"{place} is PostgreSQL {number // 10_000}; crushpy needs {OLDEST_SERVER} or newer",
            "Update the server.",
        )
    if encoding != "UTF8":
        raise StorageError(
            f"{place} stores text as {encoding}, which cannot represent every character",
            "Create a database for crushpy: createdb --encoding=UTF8 --template=template0 NAME",
        )


# --- the schema

_SCHEMA_LOCK = 0x63727079
"""The advisory lock of a process that creates or upgrades the tables."""
_STATE = f"""
SELECT to_regnamespace('crushpy') IS NOT NULL, to_regclass('crushpy.schema_version') IS NOT NULL,
    to_regclass('crushpy.migration') IS NOT NULL,
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('crushpy')),
    EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm'),
    to_regclass('crushpy.{TRIGRAM_INDEX_NAME}') IS NOT NULL
"""  # noqa: S608


_COLUMNS = (
    "SELECT table_name::text, column_name::text FROM information_schema.columns "
    "WHERE table_schema = 'crushpy'"
)


def prepare_schema(connection: psycopg.Connection[Any], location: Location, address: ServerAddress) -> None:
    """Creates or upgrades the tables if necessary; several processes may try at once."""
    version = read_version(connection)
    *_, extension, indexed = _state(connection)
    if version == VERSION and indexed >= extension:
        return
    if version is None:
        raise StorageError(
            f"the schema crushpy of {location.place} belongs to another program",
            "Name another database in database_url. Nothing was changed.",
        )
    require_supported(version, location)
    if version == OLD_VERSION:
        columns = connection.execute(_COLUMNS).fetchall()
        for statement in old_table_views("crushpy.", columns):
            connection.execute(statement.encode())
        return
    if 0 < version < VERSION:
        from crushpy.storage.migrations.upgrade import upgrade_server

        upgrade_server(address.url, _SCHEMA_LOCK)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        if read_version(connection) == 0:  # another process may have been faster
            _create_schema(connection)
        *_, extension, indexed = _state(connection)
        if extension and not indexed:
            connection.execute(TRIGRAM_INDEX)


def read_version(connection: psycopg.Connection[Any]) -> int | None:
    """The version of the schema; 0 if there is none yet, None if it belongs to another program."""
    _, ours, old, filled, *_ = _state(connection)
    if not ours and not old:
        return None if filled else 0
    query = (
        "SELECT version FROM crushpy.schema_version" if ours else "SELECT max(version) FROM crushpy.migration"
    )
    row = connection.execute(query).fetchone()
    return row[0] if row else 0


def _state(connection: psycopg.Connection[Any]) -> tuple[bool, ...]:
    row = connection.execute(_STATE.encode()).fetchone()
    assert row is not None
    return row


def _create_schema(connection: psycopg.Connection[Any]) -> None:
    exists, *_ = _state(connection)
    if not exists:
        connection.execute("CREATE SCHEMA crushpy")
    for statement in (*POSTGRESQL, *FULL_TEXT_SCHEMA):
        connection.execute(statement.encode())
    connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
    connection.execute("INSERT INTO schema_version VALUES (%s)", (VERSION,))
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:  # a search works without it, only more slowly
        if connection.closed:
            raise
        log.warning("pg_trgm: %s", error)
