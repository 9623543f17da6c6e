"""Upgrades a database to the current version with Alembic, in one transaction.

Importing Alembic costs as much as SQLModel: only an upgrade does. The version is a PRAGMA in SQLite and a row
in PostgreSQL, so that opening a database needs neither.
"""

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from crushpy.storage.generated.ddl import VERSION

FOLDER = Path(__file__).parent
_LOCK_TIMEOUT_S = 60.0


def upgrade_file(file: Path) -> None:
    """Keeps a copy beside the file. Other processes wait; a killed one leaves the old version."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(file, isolation_level=None, timeout=_LOCK_TIMEOUT_S),
        poolclass=NullPool,
    )
    with _unwrap_errors(), engine.connect() as connection:  # rolls back if it is not committed
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version < VERSION:  # otherwise another process was faster
            _back_up(file, version)
            run_revisions(connection, version)
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
        connection.exec_driver_sql("COMMIT")


def upgrade_server(url: str, lock: int) -> None:
    """Other processes wait for the advisory lock. The server's own backups are the copy."""
    import psycopg

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with _unwrap_errors(), engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL search_path = crushpy, public")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")
        version = connection.exec_driver_sql("SELECT version FROM schema_version").scalar_one()
        if version < VERSION:
            run_revisions(connection, version)
            connection.exec_driver_sql(f"UPDATE schema_version SET version = {VERSION}")  # noqa: S608


def run_revisions(connection: Connection, version: int) -> None:
    """Runs every revision after `version`; 0 runs the baseline as well."""
    script = ScriptDirectory(str(FOLDER))
    revisions = list(script.iterate_revisions("heads", str(version) if version else "base"))
    with Operations.context(MigrationContext.configure(connection)):
        for revision in reversed(revisions):
            revision.module.upgrade()


@contextmanager
def _unwrap_errors() -> Generator[None]:
    """Errors of the database, as its own library raises them."""
    try:
        yield
    except DBAPIError as error:
        raise (error.orig or error) from error


def _back_up(file: Path, version: int) -> None:
    """Copies the database. The caller holds the write lock, so nothing changes meanwhile."""
    backup = file.with_name(f"{file.name}.bak-{version}")
    if backup.exists():
        backup = file.with_name(f"{backup.name}-{time.time_ns()}")
    backup.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(file)) as source:
        source.execute("VACUUM INTO ?", (str(backup),))
