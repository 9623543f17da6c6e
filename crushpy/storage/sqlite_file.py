"""A SQLite file, the default: opened (created, a damaged one renamed, an old one upgraded, a foreign one
refused), its errors for people, waiting while other processes write, and its transactions.

Transactions are begun and ended here explicitly: those that begin with a read fail at once when two processes
write.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.core.messages import counted
from crushpy.core.paths import private_dir
from crushpy.security.private_files import locked
from crushpy.security.sanitize import encodable
from crushpy.storage import database
from crushpy.storage.generated.ddl import VERSION
from crushpy.storage.location import Location
from crushpy.storage.records import DatabaseLost, StorageError
from crushpy.storage.schema_version import require_supported
from crushpy.storage.statement import R, Statement

_MERGE_PAGES = 16
"""Pages of each table that are merged in one transaction, including overwriting: a few milliseconds."""
_TRIGRAM = 3
_FIELDS = (("message_words", "words"), ("message_parts", "parts"))
_ADD = "INSERT INTO {0} (rowid, text) VALUES (:number, :{1})"
_REMOVE = "INSERT INTO {0} ({0}, rowid, text) VALUES ('delete', :number, :{1})"
_MERGE = "INSERT INTO {0} ({0}, rank) VALUES ('merge', :pages)"
_CHANGES = Statement[Any]("SELECT total_changes()")


class SqliteFullText(database.FullTextIndex):
    """Two FTS5 tables without a copy of the text: `message_words` contains every word, `message_parts`
    trigrams. Text is removed with exactly the spelling that was added."""

    like_operator = "LIKE"
    reach_query = "SELECT key, value FROM json_each(:reach)"

    def add(self, texts: Sequence[database.IndexedText]) -> None:
        self._write(_ADD, texts)

    def remove(self, texts: Sequence[database.IndexedText]) -> None:
        self._write(_REMOVE, texts)

    def _write(self, statement: str, texts: Sequence[database.IndexedText]) -> None:
        for names in _FIELDS:
            rows = [msgspec.structs.asdict(text) for text in texts]
            self._db.execute_many(Statement[Any](statement.format(*names)), rows)

    def merge_some(self, *, begin: bool) -> bool:
        before = self._db.execute(_CHANGES).scalar()
        with self._db.secure_delete(), self._db.transaction():
            for names in _FIELDS:
                pages = -_MERGE_PAGES if begin else _MERGE_PAGES
                self._db.execute(Statement[Any](_MERGE.format(*names)), pages=pages)
        return self._db.execute(_CHANGES).scalar() - before > 2 * len(_FIELDS)

    def find_term(self, name: str, term: str, values: dict[str, Any]) -> str | None:
        has_parts = len(term) >= _TRIGRAM
        if not has_parts and not (term.isascii() and term.isalnum()):
            return None
        found: list[str] = []
        if database.LETTERS.search(term):
            values[f"{name}_words"] = _phrase(term)
            found.append(f"SELECT rowid FROM message_words WHERE message_words MATCH :{name}_words")  # noqa: S608
        if has_parts:
            values[f"{name}_parts"] = _all_parts(term)
            found.append(f"SELECT rowid FROM message_parts WHERE message_parts MATCH :{name}_parts")  # noqa: S608
        return " UNION ".join(found)

    def rank(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        values["words"] = " OR ".join(map(_phrase, terms))
        ranks = "SELECT rowid AS number, rank FROM message_words WHERE message_words MATCH :words"
        return f"LEFT JOIN ({ranks}) AS ranked ON ranked.number = message.number", "ranked.rank"


def _phrase(term: str) -> str:
    """Its words in order; the last one may be longer."""
    return '"' + term.replace('"', '""') + '" *'


def _all_parts(term: str) -> str:
    """All trigrams of its words."""
    lower = term.lower()
    runs = (word[at : at + _TRIGRAM] for word in lower.split() for at in range(len(word) - _TRIGRAM + 1))
    return " AND ".join('"' + run.replace('"', '""') + '"' for run in dict.fromkeys(runs)) or '""'


_LONG_LOG_BYTES = 1_000 * 4_096
"""From here on a commit moves the log into the file: SQLite's default, in pages of its default size."""
DAMAGED_SUFFIX = ".damaged"
"""Ends the name of a file beside the database: reading failed, and the next start checks it."""
_FILE_HINT = "Check the folder's permissions and the free space, or set CRUSHPY_HOME to another folder."
INTACT_RETRY_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4)
SQLITE_TIMEOUT_S = 0.004
"""How long SQLite waits by itself: the longer it does, the less often it polls."""
_POLL_S = 0.01
"""The longest time between two attempts."""


@contextmanager
def explained(file: Path) -> Generator[None]:
    """Turns errors of the database into `StorageError`. Bugs stay what they are."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot use the database {file}: {error.strerror or error}", _FILE_HINT
        ) from error
    except sqlite3.Error as error:
        name = error_name(error)
        if name.startswith("SQLITE_CORRUPT"):
            with suppress(OSError):
                file.with_name(f"{file.name}{DAMAGED_SUFFIX}").touch(mode=0o600)
        hint = database.find_hint("sqlite", name)
        lost = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        raise (DatabaseLost if lost else StorageError)(
            f"cannot use the database {file}: {error}", hint
        ) from error


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of the error, such as SQLITE_FULL. Empty if Python raised it by itself."""
    return cast(str, getattr(error, "sqlite_errorname", None) or "")


def _is_busy(error: Exception) -> bool:
    """Whether another process is writing."""
    return isinstance(error, sqlite3.Error) and error_name(error).startswith("SQLITE_BUSY")


sqlite3.register_converter("BOOLEAN", lambda value: value == b"1")
APPLICATION_ID = 0x63727079
"""Marks the file as ours: "crpy" in ASCII."""
_ATTEMPTS = 20
_QUICK_CHECK_BYTES = 16 * 1024 * 1024
"""A file up to this size is checked whenever it is opened: a few milliseconds."""


# All three at one moment: another process may be creating the tables.
_IDENTITY = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)
FROM pragma_user_version, pragma_application_id
"""


class DamagedFile(sqlite3.DatabaseError):
    """Part of the file is invalid, though its beginning is not."""

    sqlite_errorname = "SQLITE_CORRUPT"


def open_sqlite(location: Location, retry: database.Wait) -> sqlite3.Connection:
    """An open file of the current version, created if necessary. Adds to the warnings of `location`."""
    file = location.file
    if not location.replaces_damaged and file.exists():
        return retry(lambda: _connect(location))
    attempts = 0
    while True:
        attempts += 1
        _make_private(file)
        try:
            return retry(lambda: _connect(location))
        except sqlite3.DatabaseError as error:
            done = _replace_damaged(location) if _is_damaged(error) else ""
            if done:
                location.warnings.append(f"The database {file} could not be read ({error}). {done}")
            elif attempts == _ATTEMPTS or not (
                # Another process may be renaming a damaged file.
                _is_damaged(error) or error_name(error).startswith("SQLITE_CANTOPEN")
            ):
                raise


def _connect(location: Location) -> sqlite3.Connection:
    file = location.file
    connection = _open_existing(file)
    try:
        version = _refuse_foreign(connection, file)
        require_supported(version, location)
        _check(connection, file)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            # Unlike a write, this switch does not wait at all while another process uses the file.
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            _create_schema(connection)
        elif version < VERSION:
            from crushpy.storage.migrations.upgrade import upgrade_file

            upgrade_file(file)
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, file: Path) -> None:
    """Raises DamagedFile. A large file is only checked if it failed before."""
    suspected = file.with_name(f"{file.name}{DAMAGED_SUFFIX}")
    if not suspected.exists() and file.stat().st_size > _QUICK_CHECK_BYTES:
        return
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedFile(str(found).replace("\n", " "))
    suspected.unlink(missing_ok=True)


def is_intact(file: Path, tokens: set[int], *, alone: bool = True) -> bool:
    """Whether an open file that was changed is still a sound database, with these leases in the file itself.

    `alone`: read first without its log, which may hide that the file was overwritten.
    """
    try:
        how = "immutable=1" if alone else "mode=ro"
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{how}", uri=True)) as bare:
            stored = {row[0] for row in bare.execute("SELECT token FROM lease")} if tokens else set[int]()
            bare.execute("PRAGMA user_version").fetchone()
        with closing(_open_existing(file)) as connection:
            _check(connection, file)
    except sqlite3.DatabaseError as error:
        return _is_busy(error)
    return tokens <= stored


def _open_existing(file: Path) -> sqlite3.Connection:
    """Connects to an existing file; SQLite would create one that others can read."""
    # Even reading creates files beside it, if none is there.
    is_read_only = not os.access(file.parent, os.W_OK) and not any(
        side.exists() for side in _side_files(file)
    )
    how = "immutable=1" if is_read_only else "mode=rw"
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?{how}",
        uri=True,
        timeout=SQLITE_TIMEOUT_S,
        isolation_level=None,
        detect_types=sqlite3.PARSE_DECLTYPES,  # for booleans
    )


def _side_files(file: Path) -> list[Path]:
    return [file.with_name(file.name + ending) for ending in ("-wal", "-shm")]


def _make_private(file: Path) -> None:
    """Makes sure the file exists and only its owner can read it; SQLite gives its side files the same mode.

    An existing file is not opened here: closing it again would drop the locks that SQLite holds on it
    elsewhere in this process.
    """
    private_dir(file.parent)
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        # Not found: another process renamed it just now. No permission: it belongs to another user.
        with suppress(FileNotFoundError, PermissionError):
            mode = file.stat().st_mode
            if os.name == "posix" and mode & 0o077:
                file.chmod(mode & 0o700)
            for side in _side_files(file):  # created while the file was read-only, they would keep it so
                if side.exists() and mode & ~side.stat().st_mode & 0o200:
                    side.chmod(0o600)


def _is_damaged(error: sqlite3.DatabaseError) -> bool:
    return error_name(error).startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))


def _replace_damaged(location: Location) -> str:
    """Renames a damaged database with its side files; what can be read of it is put into a new one.

    A sentence about that; empty if the file can be read, or is gone, by now.
    """
    file = location.file
    with locked(file.with_name(f"{file.name}.lock")):  # others may have found the same damaged file
        try:
            with closing(_open_existing(file)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                _check(connection, file)
            return ""
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                return ""
        new = file.with_name(f"{file.name}.new-{os.getpid()}")
        saved = _salvage(location, new)
        aside = file.with_name(f"{file.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        for side, other in zip(_side_files(file), _side_files(aside), strict=True):
            with suppress(FileNotFoundError):
                side.rename(other)
        file.rename(aside)
        file.with_name(f"{file.name}{DAMAGED_SUFFIX}").unlink(missing_ok=True)
        if not saved:
            return f"It was renamed to {aside.name}, and a new one was created."
        new.replace(file)
        found = f"with what could be read of it: {counted(saved, 'message')}"
        return f"It was renamed to {aside.name}, and a new one was created {found}."


def _salvage(location: Location, new: Path) -> int:
    """How many messages were put into `new`; without any it does not exist."""
    from crushpy.storage.salvage import salvage

    _make_private(new)
    saved = 0
    try:
        with closing(SqliteDatabase(Location(new, ""))) as db:
            db.checkpoint()
            saved = salvage(location.file, new, db)
    except (sqlite3.Error, OSError, StorageError):
        logging.getLogger(__name__).exception("nothing could be read of the damaged database")
    finally:
        for path in (*_side_files(new), *(() if saved else (new,))):
            path.unlink(missing_ok=True)
    return saved


def sqlite_version() -> str:
    """Of the library that Python uses."""
    return sqlite3.sqlite_version


# --- the schema


def _refuse_foreign(connection: sqlite3.Connection, file: Path) -> int:
    """The version of the schema, 0 if there is none yet. Raises for a file of another program."""
    version, mark, tables = connection.execute(_IDENTITY).fetchone()
    if mark != APPLICATION_ID and tables:
        raise StorageError(
            f"the database {file} belongs to another program",
            "Set database_url (or CRUSHPY_HOME) to a file of crushpy's own. Nothing was changed.",
        )
    return version


def _create_schema(connection: sqlite3.Connection) -> None:
    from crushpy.storage.generated.ddl import SQLITE

    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0]:  # another process was faster
            return
        for statement in SQLITE:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


# --- the database: one connection, with its transactions and leases. Lives on the storage thread.


def _lost(place: str, happened: str) -> DatabaseLost:
    hint = "Restart crushpy to use the file as it is now."
    return DatabaseLost(f"the database {place} {happened} while it was in use", hint)


class SqliteDatabase(database.Database):
    def __init__(self, location: Location) -> None:
        self.place = location.place
        self._file = location.file
        busy = f"Another program is writing to the database {self.place}."
        notices = (busy, f"The database {self.place} is free again.")
        self._retry = database.Wait(location, notices, _is_busy, _POLL_S)
        self._raw = open_sqlite(location, self._retry)
        self._durable = False
        self._location = location
        location.known_state = location.read_state()
        self._first_version = self._read_data_version()
        self.leases = database.Leases(self, on_server=False)
        self.full_text = SqliteFullText(self)

    def execute(self, statement: Statement[R], **values: Any) -> database.Rows[R]:
        """A single statement waits for other processes; a transaction has done that already."""

        def attempt() -> database.Rows[R]:
            return database.Rows(self._raw.execute(statement.sql, values), statement.row)

        try:
            if self._raw.in_transaction:
                return attempt()
            before = self._raw.total_changes
            rows = self._retry(attempt, waits=self.waits)
            if self._raw.total_changes != before:
                self._adopt_own_write()
            return rows
        except UnicodeEncodeError:
            return self.execute(statement, **encodable(values))

    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(statement, **row)

    @contextmanager
    def transaction(self, *, durable: bool = False, session: str = "") -> Generator[None]:
        """No other process writes anything meanwhile, to any conversation."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._retry(lambda: self._raw.execute("BEGIN IMMEDIATE"), waits=self.waits)
        with self._raw:  # commits, or rolls back
            self.verify()
            if session:
                self.leases.confirm(session)
            yield
        self._adopt_own_write()

    def verify(self) -> None:
        known, state = self._location.known_state, self._location.read_state()
        if known is None or state == known:
            return
        if state is None:
            raise _lost(self.place, "was deleted")
        if state[:2] != known[:2]:
            raise _lost(self.place, "was replaced by another file")
        if known[-1] not in (0, state[-1]):
            raise _lost(self.place, "lost its write-ahead log, the file that ends with -wal,")
        if state[:-1] != known[:-1]:
            # Only processes that write move the log into the file; others may do so later, and in parts.
            self._require_intact(others_wrote=self._first_version != self._read_data_version())
        self._location.known_state = state

    def _require_intact(self, *, others_wrote: bool) -> None:
        """Looks again before it complains: while another process moves the log into the file, which needs no
        write lock and may take seconds on a busy disk, the file alone is not a sound database."""
        tokens = set[int]() if others_wrote else self.leases.tokens
        for pause in INTACT_RETRY_PAUSES_S:
            time.sleep(pause)
            if is_intact(self._file, tokens):
                return
        if others_wrote and is_intact(self._file, tokens, alone=False):
            return
        raise _lost(self.place, "was overwritten or damaged")

    def _adopt_own_write(self) -> None:
        """Accepts the state of the file after our own write.

        SQLite moves the log into the file only once the log is long: any other change is not ours.
        """
        known, state = self._location.known_state, self._location.read_state()
        if not known or not state or state[:2] != known[:2] or known[-1] not in (0, state[-1]):
            return
        with suppress(FileNotFoundError):
            if state[2:4] == known[2:4] or _side_files(self._file)[0].stat().st_size > _LONG_LOG_BYTES:
                self._location.known_state = state

    def _read_data_version(self) -> int:
        """Changes with every commit of another connection."""
        return self._raw.execute("PRAGMA data_version").fetchone()[0]

    def run(self, job: Callable[[], database.T], *, patient: bool) -> database.T:
        """Transactions wait for other processes by themselves."""
        with explained(self._file):
            return job()

    def _may_be_written_later(self, error: Exception) -> bool:
        if not isinstance(error, sqlite3.Error):
            return False
        return error_name(error).startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_FULL"))

    @contextmanager
    def secure_delete(self) -> Generator[None]:
        self._raw.execute("PRAGMA secure_delete = ON")
        try:
            yield
        finally:
            self._raw.execute("PRAGMA secure_delete = OFF")

    def check(self) -> list[str]:
        try:
            problems = [str(row[0]) for row in self._raw.execute("PRAGMA integrity_check")]
            orphans = self._raw.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.DatabaseError as error:  # too damaged to be checked completely
            return [str(error)]
        problems = [] if problems == ["ok"] else problems
        return problems + [f"table {row[0]}: row {row[1]} points at a missing {row[2]}" for row in orphans]

    def checkpoint(self) -> None:
        """Moves the log into the file."""
        self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._raw.close()
