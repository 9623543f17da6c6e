"""A PostgreSQL server: one connection, replaced if it is lost. Lives on the storage thread.

A transaction that writes to a conversation locks the row of its first session: numbers are assigned in the
order in which they are committed there, and no other process writes to it meanwhile. Other conversations
continue.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import PipelineStatus
from psycopg.types.string import StrDumper

from crushpy.core.ids import new_id
from crushpy.security.sanitize import encodable
from crushpy.storage import postgres_server as server
from crushpy.storage.database import GAVE_UP_SECONDS, NEVER, Database, Leases, Rows, Statement, handwritten
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.postgres_search import PostgresFullText
from crushpy.storage.records import StorageError

T = TypeVar("T")
R = TypeVar("R")
CONNECT_TIMEOUT_S = 10
SERVER_TIMEOUT_S = 60.0
"""How long a job waits for a server that cannot be reached."""
_MAX_RETRY_DELAY_S = 2.0
_MAX_INTERRUPTIONS = 20
"""How often a job is repeated after a collision or a lost connection."""
NUL_MARK = "\U0010fff0"
"""Precedes a letter that says what was replaced, NUL or the mark itself: PostgreSQL has no NUL."""
# The writer's row tells after a lost connection whether that transaction was committed. (The number that the
# server gives a transaction would not: after a crash it may give it to another one.)
_LOCK = handwritten("""
WITH counted AS (
    INSERT INTO crushpy.writer VALUES (:name, :number, extract(epoch FROM clock_timestamp()))
    ON CONFLICT (name) DO UPDATE SET number = excluded.number, at = excluded.at
)
SELECT root.id FROM crushpy.session JOIN crushpy.session AS root ON root.id = session.root_id
WHERE session.id = :session FOR NO KEY UPDATE OF root
""")
_FORGET_WRITER = (
    "DELETE FROM crushpy.writer WHERE name = %s OR at < extract(epoch FROM clock_timestamp()) - 86400"
)
_SETTINGS = """
SET search_path = crushpy, public;
SET client_encoding = 'UTF8';
SET jit = off;
SET lock_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s'
"""


def open_server(location: Location, address: ServerAddress) -> "PostgresDatabase":
    database = PostgresDatabase(location, address)
    try:
        raw = database.connect()
        server.refuse_unsuitable(raw, location.place)
        server.prepare_schema(raw, location, address)
    except psycopg.Error as error:
        database.close()
        raise server.explain(address, error) from error
    except BaseException:
        database.close()
        raise
    return database


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
        self._notified = False
        self._deadline = 0.0
        """Until then the current job waits for the server."""
        self._gave_up_at = NEVER
        self.leases = Leases(self, on_server=True)
        self.full_text = PostgresFullText(self)

    # --- the connection --------------------------------------------------------------------------------

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

    def _is_unusable(self) -> bool:
        """A connection that was lost among several statements may not know yet that it is closed."""
        return self.raw is None or self.raw.closed or self.raw.info.pipeline_status != PipelineStatus.OFF

    def _disconnect(self) -> None:
        if self.raw is not None:
            self.raw.close()
        self.raw = None

    def _reconnect(self) -> None:
        """Waits for the server, as long as the current job may; notifies once."""
        delay = 0.05
        while True:
            try:
                self.connect()
                self._gave_up_at = NEVER
                return
            except psycopg.Error as error:
                if not server.may_recover(error) or time.monotonic() >= self._deadline:
                    if self._deadline > NEVER:
                        self._gave_up_at = time.monotonic()
                    explained = server.explain(self._address, error)
                    hint = f"What was acknowledged before is stored. {explained.hint}"
                    raise StorageError(explained.message, hint) from error
            if not self._notified and delay > 0.2:
                self._notified = True
                self._location.notify(
                    f"The database {self.place} cannot be reached. Waiting for it, up to a minute."
                )
            time.sleep(random.uniform(delay / 2, delay))  # noqa: S311  # not for secrets
            delay = min(2 * delay, _MAX_RETRY_DELAY_S)

    def run(self, job: Callable[[], T], asked: float) -> T:
        gave_up = 0 <= asked - self._gave_up_at < GAVE_UP_SECONDS
        self._deadline = asked + (0 if gave_up else SERVER_TIMEOUT_S)
        interruptions = 0
        while True:
            try:
                done = job()
            except server.Interrupted as interrupted:
                interruptions += 1
                if interruptions > _MAX_INTERRUPTIONS:
                    raise StorageError(
                        f"cannot use the database {self.place}: {interrupted}",
                        f"It was tried {interruptions} times, and is not stored. {server.OTHER_HINT}",
                    ) from interrupted
                if interrupted.lost:
                    self._reconnect()
            except psycopg.Error as error:
                raise server.explain(self._address, error) from error
            else:
                if self._notified:
                    self._notified = False
                    self._location.notify(f"The database {self.place} can be reached again.")
                return done

    # --- statements ------------------------------------------------------------------------------------

    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]:
        with self._classify_errors():
            cursor = self._connected().cursor()
            return Rows(cursor.execute(statement.postgres.encode(), values), statement.row)

    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        with self._classify_errors():
            cursor = self._connected().cursor()
            if len(rows) == 1:
                cursor.execute(statement.postgres.encode(), rows[0])
            else:
                cursor.executemany(statement.postgres.encode(), rows)

    @contextmanager
    def _classify_errors(self) -> Generator[None]:
        """An error after which everything may be repeated becomes `Interrupted`."""
        try:
            yield
        except psycopg.Error as error:
            if server.is_lost(error, self._is_unusable()):
                self._disconnect()
                raise server.Interrupted(error, lost=True) from error
            if server.is_collision(error):
                raise server.Interrupted(error, lost=False) from error
            raise

    # --- transactions ----------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        self.execute(handwritten("BEGIN"))
        try:
            if not self.waits:
                self.execute(handwritten("SET LOCAL lock_timeout = '300ms'"))
            if session:
                self._lock(session)
            yield
            self._commit(verifiable=bool(session))
        except BaseException:
            self._roll_back()
            raise

    def _lock(self, session: str) -> None:
        """Locks a conversation; a new one has no row yet."""
        self._number += 1
        root = self.execute(_LOCK, name=self._name, number=self._number, session=session).scalar()
        if root is not None:
            self.leases.confirm(root)

    def _commit(self, *, verifiable: bool) -> None:
        """Returns once it is committed. If the answer was lost, the writer's row tells."""
        try:
            self.execute(handwritten("COMMIT"))
        except server.Interrupted as interrupted:
            if not interrupted.lost or not verifiable:
                raise
            self._reconnect()
            find = handwritten("SELECT number FROM crushpy.writer WHERE name = :name")
            if self.execute(find, name=self._name).scalar() != self._number:
                raise

    def _roll_back(self) -> None:
        raw = self.raw
        if raw is None or raw.closed:
            return
        try:
            raw.execute("ROLLBACK")
        except psycopg.Error:
            self._disconnect()  # the server rolls back by itself

    def _may_be_written_later(self, error: Exception) -> bool:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        return (state or "").startswith(("55P03", "25006", "53100"))

    def lock_sequence(self, table: str) -> None:
        lock = handwritten("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        self.execute(lock, name=f"crushpy {table}")

    def reset_sequence(self, table: str) -> None:
        self.execute(
            handwritten(
                f"SELECT setval(pg_get_serial_sequence('crushpy.{table}', 'number'), "  # noqa: S608  # our own name
                "greatest((SELECT max(last_value) FROM pg_sequences WHERE schemaname = 'crushpy' "
                f"AND sequencename = '{table}_number_seq'), (SELECT max(number) FROM {table}), 1))"
            )
        )

    def close(self) -> None:
        if self.raw is not None and self._number:
            with suppress(psycopg.Error):
                self.raw.execute(_FORGET_WRITER, (self._name,))
        self._disconnect()


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
