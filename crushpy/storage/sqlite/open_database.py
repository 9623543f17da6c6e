"""Opens the database file: makes it, sets a broken one aside, brings an old one up to date."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.paths import private_dir
from crushpy.security.private_files import locked
from crushpy.storage.sqlite.faults import DAMAGED, fault_name
from crushpy.storage.sqlite.migrations import refuse_foreign, upgrade
from crushpy.storage.sqlite.patience import AT_A_TIME, Patience

if TYPE_CHECKING:
    from crushpy.storage.database import Database

_ATTEMPTS = 20
_QUICKLY_CHECKED = 16 * 1024 * 1024
"""A file up to this size is looked through whenever it is opened: a few milliseconds."""


class DamagedFile(sqlite3.DatabaseError):
    """Part of the file makes no sense, though its beginning does."""

    sqlite_errorname = "SQLITE_CORRUPT"


def open_database(
    file: Path, warnings: list[str], say: Callable[[str], None], *, sets_aside: bool = True
) -> "Database":
    """The database in `file`, ready to use. Appends to `warnings` what a person should know.

    `say` is told, then and later, that it waits for others. Unless it `sets_aside` what cannot be read, it is
    left as it is.
    """
    patience = Patience(str(file), say)
    if sets_aside or not file.exists():
        connection = _open_file(file, warnings, patience)
    else:
        connection = patience(lambda: _connect(file))
    from crushpy.storage.database import Database
    from crushpy.storage.output_table import NoOutputs
    from crushpy.storage.sqlite.connection import SqliteConnection
    from crushpy.storage.sqlite.full_text import SqliteFullText
    from crushpy.storage.sqlite.leases import SqliteLeases

    ours = SqliteConnection(connection, file, patience)
    return Database(ours, SqliteLeases(ours), SqliteFullText(ours), NoOutputs())


def _open_file(file: Path, warnings: list[str], patience: Patience) -> sqlite3.Connection:
    attempts = 0
    while True:
        attempts += 1
        _make_private(file)
        try:
            return patience(lambda: _connect(file))
        except sqlite3.DatabaseError as fault:
            aside = _set_aside(file) if _is_broken(fault) else None
            if aside is not None:
                warnings.append(
                    f"The database {file} could not be read ({fault}). It was kept as {aside.name}, "
                    "and a new one was started."
                )
            elif attempts == _ATTEMPTS or not _may_be_moving(fault):
                raise


def _connect(file: Path) -> sqlite3.Connection:
    connection = _existing(file)
    try:
        refuse_foreign(connection, file)
        _look_through(connection, file)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        upgrade(connection, file)
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _look_through(connection: sqlite3.Connection, file: Path) -> None:
    """Raises DamagedFile. A large file is only looked through where it failed before."""
    suspected = file.with_name(f"{file.name}{DAMAGED}")
    if not suspected.exists() and file.stat().st_size > _QUICKLY_CHECKED:
        return
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedFile(str(found).replace("\n", " "))
    suspected.unlink(missing_ok=True)


def _existing(file: Path) -> sqlite3.Connection:
    """A connection to a file that is there; SQLite would make one that others can read."""
    how = "immutable=1" if _is_untouchable(file) else "mode=rw"
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?{how}", uri=True, timeout=AT_A_TIME, isolation_level=None
    )


def _is_untouchable(file: Path) -> bool:
    """True where nothing can be made beside it, and nobody has: even reading would need that."""
    return not os.access(file.parent, os.W_OK) and not any(side.exists() for side in _beside(file))


def _beside(file: Path) -> list[Path]:
    return [file.with_name(file.name + ending) for ending in ("-wal", "-shm")]


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turns on write-ahead logging, once for the life of the file."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Unlike a write, this switch does not wait at all while another process uses the file.
        connection.execute("PRAGMA journal_mode = WAL")


def _make_private(file: Path) -> None:
    """Makes sure the file is there and only its owner can read it; SQLite gives its side files the same mode.

    An existing file is not opened here: closing it again would drop the locks that SQLite holds on it
    elsewhere in this process.
    """
    private_dir(file.parent)
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        # Not found: another process set it aside just now. No permission: somebody shares it with us.
        with suppress(FileNotFoundError, PermissionError):
            mode = file.stat().st_mode
            if os.name == "posix" and mode & 0o077:
                file.chmod(mode & 0o700)
            for side in _beside(file):  # made while the file was only to be read, they would keep it so
                if side.exists() and mode & ~side.stat().st_mode & 0o200:
                    side.chmod(0o600)


def _is_broken(fault: sqlite3.DatabaseError) -> bool:
    return fault_name(fault).startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))


def _may_be_moving(fault: sqlite3.DatabaseError) -> bool:
    """True where another process that sets a broken file aside would explain the fault."""
    return _is_broken(fault) or fault_name(fault).startswith("SQLITE_CANTOPEN")


def _set_aside(file: Path) -> Path | None:
    """Renames a broken database with its side files. None where it reads well, or is gone, by now."""
    with locked(file.with_name(f"{file.name}.lock")):  # others may have found the same broken file
        try:
            with closing(_existing(file)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                _look_through(connection, file)
            return None
        except sqlite3.DatabaseError as fault:
            if not _is_broken(fault):
                return None
        aside = file.with_name(f"{file.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        for side, other in zip(_beside(file), _beside(aside), strict=True):
            with suppress(FileNotFoundError):
                side.rename(other)
        file.rename(aside)
        file.with_name(f"{file.name}{DAMAGED}").unlink(missing_ok=True)
        return aside


def sqlite_version() -> str:
    """Of the library that Python uses."""
    return sqlite3.sqlite_version
