"""What a server must be like, and what `crushpy doctor` asks it."""

import time
from typing import TYPE_CHECKING, Any

from crushpy.messages import Data
from crushpy.storage.postgres.migrations import NEWEST, finds_parts_by_index, schema_version
from crushpy.storage.records import StorageError

if TYPE_CHECKING:
    import psycopg

OLDEST = 14
_ASK = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
    current_setting('server_encoding'), current_user,
    has_database_privilege(current_database(), 'CREATE'),
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
"""


class ServerReport(Data, frozen=True):
    """A server as it was found."""

    version: str
    number: int
    encoding: str
    role: str
    may_create: bool
    """Whether the role may make the schema and the extension."""
    read_only: bool
    schema_version: int
    """0 where nothing was stored yet."""
    trigrams: bool
    """Parts of words are found by an index."""
    latency: float
    """Seconds for one question, the best of three."""

    @property
    def newest(self) -> int:
        """The version of the tables that this crushpy makes."""
        return NEWEST


def report(connection: "psycopg.Connection[Any]") -> ServerReport:
    times: list[float] = []
    row: Any = None
    for _ in range(3):
        start = time.perf_counter()
        row = connection.execute(_ASK).fetchone()
        times.append(time.perf_counter() - start)
    version, number, encoding, role, may_create, read_only = row
    return ServerReport(
        version,
        number,
        encoding,
        role,
        may_create,
        read_only,
        schema_version(connection),
        finds_parts_by_index(connection),
        min(times),
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
