"""A PostgreSQL server: one connection, replaced if it is lost. Lives on the storage thread.

A transaction that writes to a conversation locks the row of its first session: numbers are assigned in the
order in which they are committed there, and no other process writes to it meanwhile. Other conversations
continue. Below: the server's errors, its state for `crushpy doctor`, and its schema.
"""

import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import PipelineStatus
from psycopg.rows import namedtuple_row
from psycopg.types.string import StrDumper

from crushpy.core.ids import new_id
from crushpy.core.messages import counted
from crushpy.security.sanitize import encodable
from crushpy.storage import postgres_search as search
from crushpy.storage.database import OTHER_HINT, Database, Leases, Rows, T, Wait, find_hint
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.ddl import POSTGRESQL, VERSION
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.records import Finding, StorageError
from crushpy.storage.schema_version import require_supported
from crushpy.storage.statement import R, Statement

CONNECT_TIMEOUT_S = 10
_MAX_RETRY_DELAY_S = 2.0
_MAX_INTERRUPTIONS = 20
"""How often a job is repeated after a collision or a lost connection."""
_PARAMETER = re.compile(r"(?<!:):(\w+)")
NUL_MARK = "\U0010fff0"
"""Precedes a letter that says what was replaced, NUL or the mark itself: PostgreSQL has no NUL."""
_SETTINGS = Path(__file__).with_name("server_settings.sql").read_text().encode()


class PostgresDatabase(Database):
    def __init__(self, location: Location, address: ServerAddress) -> None:
        self.place = address.shown
        self._location = location
        self._address = address
        self._name = f"crushpy {new_id()}"
        """Unique on the server."""
        self.raw: psycopg.Connection[Any] | None = None
        self._was_connected = False
        self._number = 0
        """Of the last transaction that locked a conversation."""
        self._patient = False
        """Whether the current job waits for the server."""
        away = f"The database {self.place} cannot be reached."
        notices = (away, f"The database {self.place} can be reached again.")
        self._wait = Wait(location, notices, may_recover, _MAX_RETRY_DELAY_S)
        self.leases = Leases(self, on_server=True)
        self.full_text = search.PostgresFullText(self)

    # --- the connection --------------------------------------------------------------------------------

    def prepare(self) -> None:
        raw = self.connect()
        for problem, hint in _find_unsuitable(raw):
            raise StorageError(f"cannot use the database {self.place}: {problem}", hint)
        prepare_schema(raw, self._location, self._address)

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection; transactions that an older one of ours left open on the server are ended."""
        self._disconnect()
        raw = psycopg.connect(
            self._address.url,
            autocommit=True,
            prepare_threshold=None,  # so that a connection pooler may be used
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name=self._name,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=15_000,
        )
        try:
            raw.execute(_SETTINGS)
            if self._was_connected:
                raw.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE application_name = %s AND pid <> pg_backend_pid()",
                    (self._name,),
                )
            raw.adapters.register_dumper(str, _TextDumper)
            raw.adapters.register_loader("text", _TextLoader)
            self.raw = raw
            self._was_connected = True
        except BaseException:
            raw.close()
            raise
        return raw

    def _connected(self) -> psycopg.Connection[Any]:
        if self.raw is None or self.raw.closed:
            raise psycopg.OperationalError("the connection is lost")
        return self.raw

    def _disconnect(self) -> None:
        if self.raw is not None:
            self.raw.close()
        self.raw = None

    def _reconnect(self) -> None:
        """Waits for the server, as long as the current job may."""
        try:
            self._wait(self.connect, waits=self._patient)
        except psycopg.Error as error:
            explained = explain(self._address, error)
            hint = f"What was acknowledged before is stored. {explained.hint}"
            raise StorageError(explained.message, hint) from error

    def run(self, job: Callable[[], T], *, patient: bool) -> T:
        self._patient = patient
        interruptions = 0
        while True:
            try:
                return job()
            except Interrupted as interrupted:
                interruptions += 1
                if interruptions > _MAX_INTERRUPTIONS:
                    raise StorageError(
                        f"cannot use the database {self.place}: {interrupted}",
                        f"It was tried {interruptions} times, and is not stored. {OTHER_HINT}",
                    ) from interrupted
                if interrupted.lost:
                    self._reconnect()
            except psycopg.Error as error:
                raise explain(self._address, error) from error

    # --- statements ------------------------------------------------------------------------------------

    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]:
        with self._classify_errors():
            cursor = self._connected().cursor()
            return Rows(cursor.execute(_spell(statement.postgres or statement.sql), values), statement.row)

    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        if len(rows) == 1:
            self.execute(statement, **rows[0])
        elif rows:
            with self._classify_errors():
                self._connected().cursor().executemany(_spell(statement.postgres or statement.sql), rows)

    @contextmanager
    def _classify_errors(self) -> Generator[None]:
        """An error after which everything may be repeated becomes `Interrupted`."""
        try:
            yield
        except psycopg.Error as error:
            # A connection that was lost among several statements may not know yet that it is closed.
            raw, state = self.raw, error.sqlstate or ""
            closed = raw is None or raw.closed or raw.info.pipeline_status != PipelineStatus.OFF
            if state.startswith(_LOST) or (closed and isinstance(error, psycopg.OperationalError)):
                self._disconnect()
                raise Interrupted(error, lost=True) from error
            if state.startswith(_COLLISIONS):
                raise Interrupted(error, lost=False) from error
            raise

    # --- transactions ----------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        self.execute(Statement[Any]("BEGIN"))
        try:
            if not self.waits:
                self.execute(Statement[Any]("SET LOCAL lock_timeout = '300ms'"))
            if session:
                self._lock(session)
            yield
            self._commit(verifiable=bool(session))
        except BaseException:
            try:
                if self.raw is not None and not self.raw.closed:
                    self.raw.execute("ROLLBACK")
            except psycopg.Error:
                self._disconnect()  # the server rolls back by itself
            raise

    def _lock(self, session: str) -> None:
        """Locks a conversation; a new one has no row yet."""
        self._number += 1
        root = self.execute(
            sql.LOCK_CONVERSATION, name=self._name, number=self._number, session=session
        ).scalar()
        if root is not None:
            self.leases.confirm(root)

    def _commit(self, *, verifiable: bool) -> None:
        """Returns once it is committed. If the answer was lost, the writer's row tells."""
        try:
            self.execute(Statement[Any]("COMMIT"))
        except Interrupted as interrupted:
            if not interrupted.lost or not verifiable:
                raise
            self._reconnect()
            if self.execute(sql.FIND_WRITER_NUMBER, name=self._name).scalar() != self._number:
                raise

    def _may_be_written_later(self, error: Exception) -> bool:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        return (state or "").startswith(("55P03", "25006", "53100"))

    def lock_sequence(self, table: str) -> None:
        lock = Statement[Any]("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        self.execute(lock, name=f"crushpy {table}")

    def reset_sequence(self, table: str) -> None:
        self.execute(
            Statement[Any](
                f"SELECT setval(pg_get_serial_sequence('crushpy.{table}', 'number'), "  # noqa: S608  # our own name
                "greatest((SELECT max(last_value) FROM pg_sequences WHERE schemaname = 'crushpy' "
                f"AND sequencename = '{table}_number_seq'), (SELECT max(number) FROM {table}), 1))"
            )
        )

    def close(self) -> None:
        if self.raw is not None and self._number:
            with suppress(psycopg.Error, Interrupted):
                self.execute(sql.FORGET_WRITERS, name=self._name)
        self._disconnect()


@lru_cache(maxsize=1024)
def _spell(statement: str) -> bytes:
    """A statement with psycopg's parameters."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%")).encode()


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or NUL_MARK in obj:
            obj = obj.replace(NUL_MARK, f"{NUL_MARK}m").replace("\0", f"{NUL_MARK}0")
        try:
            return super().dump(obj)
        except UnicodeEncodeError:
            return super().dump(encodable(obj))


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        if NUL_MARK in text:
            return text.replace(f"{NUL_MARK}0", "\0").replace(f"{NUL_MARK}m", NUL_MARK)
        return text


# --- its errors

log = logging.getLogger(__name__)
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
"""The server ended the connection, is starting or shutting down, or we were idle for too long."""
_COLLISIONS = ("40001", "40P01")
"""Two transactions collided; one of them is repeated."""


class Interrupted(Exception):
    """A job changed nothing and may be repeated: on a new connection if `lost`."""

    def __init__(self, cause: Exception, *, lost: bool) -> None:
        super().__init__(str(cause))
        self.lost = lost


def may_recover(error: Exception) -> bool:
    """Of a connection that was refused: whether waiting may help."""
    if not isinstance(error, psycopg.Error):
        return False
    if state := error.sqlstate or "":
        return state.startswith((*_LOST, "53300"))
    return "password" not in str(error) and "no pg_hba.conf entry" not in str(error)


def explain(address: ServerAddress, error: psycopg.Error) -> StorageError:
    """The error for people."""
    state = error.sqlstate or ""
    said = address.without_secrets(str(error)).strip()
    if not state and isinstance(error, psycopg.OperationalError):
        refused = "password" in said or "authentication" in said or "no pg_hba" in said
        state = "28" if refused else "3D" if "does not exist" in said else "unreachable"
    one_line = "; ".join(dict.fromkeys(line.strip() for line in said.splitlines() if line.strip()))
    hint = find_hint("postgresql", state)
    return StorageError(f"cannot use the database {address.shown}: {one_line}", hint)


# --- its state

OLDEST_SERVER = 14
SLOW_QUERY_S = 0.05
_STATE = Path(__file__).with_name("server_state.sql").read_text().encode()


def _read_state(connection: psycopg.Connection[Any]) -> Any:
    return connection.cursor(row_factory=namedtuple_row).execute(_STATE).fetchone()


def list_findings(address: ServerAddress) -> list[Finding]:
    """What there is to say about a server. `StorageError` if it cannot be asked. Changes nothing."""
    try:
        with psycopg.connect(address.url, autocommit=True, connect_timeout=10) as connection:
            return list(_examine(connection, address.shown))
    except psycopg.Error as error:
        raise explain(address, error) from error


def _examine(connection: psycopg.Connection[Any], place: str) -> Iterator[Finding]:
    state = _read_state(connection)
    yield "ok", f"reachable: {place} as {state.role}", ""
    yield "ok", f"PostgreSQL {state.version}, psycopg {psycopg.__version__}", ""
    for problem, hint in _find_unsuitable(connection):
        yield "fail", problem, hint
    if state.read_only:
        yield "fail", "the server is read-only", "Set database_url to the primary server."
    version = read_version(connection) or 0
    if not version and state.may_create:
        yield "ok", "nothing is stored yet: the first conversation creates the tables", ""
    elif not version:
        hint = f"As the owner of the database: CREATE SCHEMA crushpy AUTHORIZATION {state.role}"
        yield "fail", "the role may not create the schema crushpy", hint
    else:
        yield from _examine_tables(connection, version, state)
    start = time.perf_counter()
    connection.execute("SELECT 1")
    latency = time.perf_counter() - start
    advice = "Every write takes about ten queries: a closer server makes turns faster."
    slow = latency >= SLOW_QUERY_S
    yield "warn" if slow else "ok", f"{latency * 1000:.1f} ms per query", advice if slow else ""


def _examine_tables(connection: psycopg.Connection[Any], version: int, state: Any) -> Iterator[Finding]:
    tables = f"tables of version {version}"
    if version > VERSION:
        yield "fail", f"{tables}; this crushpy supports {VERSION}", "Update crushpy."
    elif version < VERSION:
        yield "warn", f"{tables}; the next start upgrades them to {VERSION}", ""
    elif state.may_write:
        [(many,)] = connection.execute("SELECT count(*) FROM crushpy.conversation").fetchall()
        yield "ok", f"{tables}, {counted(many, 'conversation')}", ""
        query = "SELECT state FROM crushpy.maintenance WHERE name = 'copy'"
        for (source,) in connection.execute(query).fetchall():
            hint = "Run the same `crushpy storage copy` again to resume it."
            yield "fail", f"a copy of {source} to it was interrupted", hint
    if not state.may_write:
        yield "fail", "the role may not write to all tables", "docs/storage.md lists the required privileges."
    if state.is_indexed:
        yield "ok", "pg_trgm: an index finds parts of words", ""
    else:
        hint = "As a superuser or the owner of the database: CREATE EXTENSION pg_trgm"
        yield "warn", "pg_trgm is missing: searches for parts of words are slow", hint


def _find_unsuitable(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
    """Why this server cannot be used, each with what to do."""
    major = connection.info.server_version // 10_000
    encoding = connection.info.parameter_status("server_encoding")
    if major < OLDEST_SERVER:
        yield f"PostgreSQL {major}: {OLDEST_SERVER} or newer is needed", "Update the server."
    if encoding != "UTF8":
        command = "createdb --encoding=UTF8 --template=template0 NAME"
        yield f"encoding {encoding}: UTF8 is required", f"Create a database for crushpy: {command}"


# --- the schema

_SCHEMA_LOCK = 0x63727079
"""The advisory lock of a process that creates or upgrades the tables."""


def prepare_schema(connection: psycopg.Connection[Any], location: Location, address: ServerAddress) -> None:
    """Creates or upgrades the tables if necessary; several processes may try at once."""
    version = read_version(connection)
    state = _read_state(connection)
    if version == VERSION and state.is_indexed >= state.has_trigrams:
        return
    if version is None:
        raise StorageError(
            f"the schema crushpy of {location.place} belongs to another program",
            "Name another database in database_url. Nothing was changed.",
        )
    require_supported(version, location)
    if 0 < version < VERSION:
        from crushpy.storage.migrations.upgrade import upgrade_server

        upgrade_server(address.url, _SCHEMA_LOCK)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        if read_version(connection) == 0:  # another process may have been faster
            _create_schema(connection)
        state = _read_state(connection)
        if state.has_trigrams and not state.is_indexed:
            connection.execute(search.TRIGRAM_INDEX)


def read_version(connection: psycopg.Connection[Any]) -> int | None:
    """The version of the schema; 0 if there is none yet, None if it belongs to another program."""
    state = _read_state(connection)
    if not state.is_ours and not state.is_old:
        return None if state.has_tables else 0
    ours, old = "SELECT version FROM crushpy.schema_version", "SELECT max(version) FROM crushpy.migration"
    row = connection.execute(ours if state.is_ours else old).fetchone()
    return row[0] if row else 0


def _create_schema(connection: psycopg.Connection[Any]) -> None:
    if not _read_state(connection).has_schema:
        connection.execute("CREATE SCHEMA crushpy")
    for statement in POSTGRESQL:
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


# --- tables of others


def create_foreign_tables(db: Database, schema: str, version: str, ddl: str) -> str:
    """Inside a transaction: creates tables that are not ours in a schema of their own. The version of those
    that exist already; empty if there were none."""
    db.lock_sequence(schema)
    query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :name"
    found = db.execute(Statement[Any](query), name=schema).scalars()
    if found:
        return found[0] or "another program"
    before = db.execute(Statement[Any]("SHOW search_path")).scalar()
    for statement in (
        f"CREATE SCHEMA {schema}",
        f"COMMENT ON SCHEMA {schema} IS '{version}'",
        f"SET LOCAL search_path = {schema}",
        ddl,
        f"SET LOCAL search_path = {before}",
    ):
        db.execute(Statement[Any](statement))
    return ""
