"""A server of PostgreSQL, seen from the storage thread: a job that lost its connection is done again."""

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from crushpy.core.ids import new_id
from crushpy.storage.backend import JUST_NOW, LONG_AGO, Backend
from crushpy.storage.postgres.address import ServerAddress
from crushpy.storage.postgres.server import NO_LIBRARY, refuse_unsuited
from crushpy.storage.records import StorageError

if TYPE_CHECKING:
    from crushpy.storage.database import Database
    from crushpy.storage.postgres.connection import PostgresConnection

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""How long a job waits for a server that is gone."""
_LONGEST_PAUSE = 2.0
_INTERRUPTIONS = 20
"""How often a job is done again that was in another's way, or lost its connection."""


class PostgresBackend(Backend):
    one_writer = False

    def __init__(self, url: str) -> None:
        super().__init__()
        self._address = ServerAddress(url)
        self._connection: PostgresConnection | None = None
        self._told = False
        self._until = 0.0
        """When the job at hand has waited long enough."""
        self._gave_up = LONG_AGO
        """When a job last waited in vain."""

    @property
    def place(self) -> str:
        return self._address.shown

    @property
    def exists(self) -> bool:
        return True

    @property
    def keeps_outputs(self) -> bool:
        return True

    def open(self) -> "Database":
        if self.database is None:
            self.database = self._open()
        return self.database

    def _open(self) -> "Database":
        try:
            import psycopg
        except ImportError as error:
            raise StorageError(
                f"{self.place} needs psycopg, which is not here: {error}", NO_LIBRARY
            ) from error
        from crushpy.storage.database import Database
        from crushpy.storage.postgres.connection import PostgresConnection
        from crushpy.storage.postgres.faults import explain
        from crushpy.storage.postgres.full_text import PostgresFullText
        from crushpy.storage.postgres.leases import PostgresLeases
        from crushpy.storage.postgres.migrations import made_ready
        from crushpy.storage.postgres.outputs import PostgresOutputs

        connection = PostgresConnection(self._address, f"crushpy {new_id()}", self._reconnect)
        try:
            raw = connection.connect()
            refuse_unsuited(raw, self.place)
            self.refuse_unfinished(made_ready(raw, self.place))
        except psycopg.Error as fault:
            connection.close()
            raise explain(self._address, fault) from fault
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        outputs = PostgresOutputs(connection)
        return Database(connection, PostgresLeases(connection), PostgresFullText(connection), outputs)

    def work(self, job: "Callable[[Database], T]", asked: float | None = None) -> T:
        database = self.open()
        began = time.monotonic() if asked is None else asked
        in_vain = 0 <= began - self._gave_up < JUST_NOW
        self._until = began + (0 if in_vain else PATIENCE_SECONDS)
        from psycopg import Error

        from crushpy.storage.postgres.faults import OTHER, Interrupted, explain

        interruptions = 0
        while True:
            try:
                done = job(database)
            except Interrupted as interrupted:
                interruptions += 1
                if interruptions > _INTERRUPTIONS:
                    raise StorageError(
                        f"cannot use the database {self.place}: {interrupted}",
                        f"It was tried {interruptions} times, and is not stored. {OTHER}",
                    ) from interrupted
                if interrupted.lost:
                    self._reconnect()
            except Error as fault:
                raise explain(self._address, fault) from fault
            else:
                if self._told:
                    self._told = False
                    self.say(f"The database {self.place} is there again.")
                return done

    def _reconnect(self) -> None:
        """Waits for the server, as long as the job at hand may; says so once."""
        from psycopg import Error

        from crushpy.storage.postgres.faults import explain, may_pass

        assert self._connection is not None
        pause = 0.05
        while True:
            try:
                self._connection.connect()
                self._gave_up = LONG_AGO
                return
            except Error as fault:
                if not may_pass(fault) or time.monotonic() >= self._until:
                    if self._until > LONG_AGO:
                        self._gave_up = time.monotonic()
                    raise self._given_up(explain(self._address, fault)) from fault
            if not self._told and pause > 0.2:
                self._told = True
                self.say(f"The database {self.place} cannot be reached. Waiting for it, up to a minute.")
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  # not for secrets
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _given_up(self, error: StorageError) -> StorageError:
        return StorageError(
            error.message,
            f"What was acknowledged before is stored. {error.hint}",
        )

    def close(self) -> None:
        super().close()
        self._connection = None
