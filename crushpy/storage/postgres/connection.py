"""One connection to a server of PostgreSQL, made anew where it is lost. Lives on the storage thread.

A transaction that writes to a conversation locks the row of its first session: numbers are given out in the
order in which they are committed there, and nobody else writes to it meanwhile. Other conversations go on.
"""

import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from types import MappingProxyType
from typing import Any, LiteralString

import psycopg
from psycopg.pq import PipelineStatus

from crushpy.storage.connection import Connection, Dialect, Values
from crushpy.storage.postgres.address import ServerAddress
from crushpy.storage.postgres.faults import Interrupted, is_collision, is_lost, is_put_off
from crushpy.storage.postgres.text_adapters import adapt
from crushpy.storage.records import CannotWriteNow
from crushpy.storage.rows import Rows

CONNECT_SECONDS = 10
_QUARTER = 900
"""Seconds. The offset of every time zone is a multiple of it."""
_VALUE = re.compile(r"(?<!:):(\w+)")
SPELLING = Dialect(
    name="postgres",
    pairs_of="SELECT key, CAST(value AS bigint) FROM json_each_text(CAST({} AS json))",
    items_of="SELECT json_array_elements_text(CAST({} AS json))",
    numbers_of="SELECT CAST(json_array_elements_text(CAST({} AS json)) AS bigint)",
    like="ILIKE",
    day_of=f"floor({{}} / {_QUARTER})",
    figure_of="sum(CAST(CAST(message.usage AS json) ->> '{}' AS double precision))",
    bytes_of="{}",
    locking=" FOR UPDATE",
)
# The writer's row tells after a lost connection whether that transaction was committed. (The number that the
# server gives a transaction would not: after a crash it may give it to another one.)
_LOCK = """
WITH counted AS (
    INSERT INTO crushpy.writer VALUES (%s, %s, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET number = excluded.number, at = excluded.at
)
SELECT root.id FROM crushpy.session JOIN crushpy.session AS root ON root.id = session.root_id
WHERE session.id = %s FOR NO KEY UPDATE OF root
"""
_FORGOTTEN = "DELETE FROM crushpy.writer WHERE name = %s OR at < clock_timestamp() - interval '1 day'"
_SETTINGS = """
SET search_path = crushpy, public;
SET client_encoding = 'UTF8';
SET jit = off;
SET lock_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s'
"""


class PostgresConnection(Connection):
    dialect = SPELLING

    def __init__(self, address: ServerAddress, name: str, reconnect: Callable[[], None]) -> None:
        """`reconnect` waits for the server and calls `connect`; `name` is nobody else's on the server."""
        self.place = address.shown
        self._address = address
        self._name = name
        self._reconnect = reconnect
        self.raw: psycopg.Connection[Any] | None = None
        self._was_connected = False
        self._number = 0
        """Of the last transaction that locked a conversation."""
        self._brief = False
        self.on_lock: Callable[[str], None] = _nothing
        """Told the first session of a conversation that was just locked, inside the transaction."""

    # --- the connection --------------------------------------------------------------------------------

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection; what an older one of ours left unfinished on the server is ended."""
        self._forget()
        raw = psycopg.connect(
            self._address.url,
            autocommit=True,
            prepare_threshold=None,  # so that a pooler may stand between
            connect_timeout=CONNECT_SECONDS,
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
            adapt(raw)
            self.raw = raw
            self._was_connected = True
        except BaseException:
            raw.close()
            raise
        return raw

    def _live(self) -> psycopg.Connection[Any]:
        """The connection; a fault where there is none any more."""
        if self.raw is None or self.raw.closed:
            raise psycopg.OperationalError("the connection is lost")
        return self.raw

    def _is_unusable(self) -> bool:
        """A connection that was lost among several statements may not know yet that it is closed."""
        return self.raw is None or self.raw.closed or self.raw.info.pipeline_status != PipelineStatus.OFF

    def _forget(self) -> None:
        if self.raw is not None:
            self.raw.close()
        self.raw = None

    # --- statements ------------------------------------------------------------------------------------

    def execute(self, statement: str, values: Values = MappingProxyType({})) -> Rows:
        with self._told_apart():
            cursor = self._live().cursor()
            if isinstance(values, Mapping) or len(values) == 1:
                only = values if isinstance(values, Mapping) else values[0]
                return Rows(cursor.execute(_as_psycopg_has_it(statement), dict(only)))
            cursor.executemany(_as_psycopg_has_it(statement), values)
            return Rows(cursor)

    def _plainly(self, statement: LiteralString, values: tuple[Any, ...] = ()) -> psycopg.Cursor[Any]:
        with self._told_apart():
            return self._live().execute(statement, values or None)

    @contextmanager
    def _told_apart(self) -> Generator[None]:
        """A fault after which everything may be done again comes out as `Interrupted`."""
        try:
            yield
        except psycopg.Error as fault:
            if is_lost(fault, self._is_unusable()):
                self._forget()
                raise Interrupted(fault, lost=True) from fault
            if is_collision(fault):
                raise Interrupted(fault, lost=False) from fault
            raise

    # --- transactions ----------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        self._plainly("BEGIN")
        try:
            if self._brief:
                self._plainly("SET LOCAL lock_timeout = '300ms'")
            if session:
                self._lock(session)
            yield
            self._commit(known=bool(session))
        except BaseException:
            self._roll_back()
            raise

    def _lock(self, session: str) -> None:
        """Locks a conversation; one that is being made has no row yet."""
        self._number += 1
        row = self._plainly(_LOCK, (self._name, self._number, session)).fetchone()
        if row is not None:
            self.on_lock(row[0])

    def _commit(self, *, known: bool) -> None:
        """Returns once it is committed. Where the answer was lost, that is `known` by the writer's row."""
        try:
            self._plainly("COMMIT")
        except Interrupted as interrupted:
            if not interrupted.lost or not known:
                raise
            self._reconnect()
            row = self._plainly("SELECT number FROM crushpy.writer WHERE name = %s", (self._name,)).fetchone()
            if row is None or row[0] != self._number:
                raise

    def _roll_back(self) -> None:
        raw = self.raw
        if raw is None or raw.closed:
            return
        try:
            raw.execute("ROLLBACK")
        except psycopg.Error:
            self._forget()  # the server rolls back by itself

    @contextmanager
    def briefly(self) -> Generator[None]:
        before, self._brief = self._brief, True
        try:
            yield
        except psycopg.Error as fault:
            if not is_put_off(fault):
                raise
            raise CannotWriteNow(f"cannot write to the database {self.place} now: {fault}") from fault
        finally:
            self._brief = before

    def numbering(self, table: str) -> None:
        self._plainly("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"crushpy {table}",))

    @contextmanager
    def overwriting(self) -> Generator[None]:
        """The server decides when it uses deleted rows' space again."""
        yield

    # --- the rest --------------------------------------------------------------------------------------

    def as_text(self, data: bytes | bytearray) -> str:
        return data.decode()

    def day(self, moment: float) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(float(moment) * _QUARTER))

    def check(self) -> list[str]:
        invalid = self._plainly(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE NOT indisvalid AND relnamespace = to_regnamespace('crushpy')"
        ).fetchall()
        tipless = self._plainly(
            "SELECT id FROM crushpy.session WHERE kind NOT IN ('task', 'deleted') "
            "AND NOT EXISTS (SELECT FROM crushpy.conversation WHERE conversation.root_id = session.root_id)"
        ).fetchall()
        return [f"the index {name} is not valid" for (name,) in invalid] + [
            f"session {session} is in no conversation" for (session,) in tipless
        ]

    def count_on(self, table: str) -> None:
        self._plainly(
            "SELECT setval(pg_get_serial_sequence(%s, 'number'), "
            "greatest((SELECT max(last_value) FROM pg_sequences WHERE schemaname = 'crushpy' "
            "AND sequencename = %s), %s, 1))",
            (f"crushpy.{table}", f"{table}_number_seq", self._largest(table)),
        )

    def _largest(self, table: str) -> int:
        return self.execute(f"SELECT coalesce(max(number), 0) FROM {table}").scalar()  # noqa: S608

    def close(self) -> None:
        if self.raw is not None and self._number:
            with suppress(psycopg.Error):
                self.raw.execute(_FORGOTTEN, (self._name,))
        self._forget()


@cache
def _as_psycopg_has_it(statement: str) -> bytes:
    """Values named as psycopg wants them."""
    return _VALUE.sub(r"%(\1)s", statement.replace("%", "%%")).encode()


def _nothing(_: str) -> None:
    pass
