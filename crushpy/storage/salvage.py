"""Copies what can be read of a damaged SQLite file into a new one, row by row."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import SessionInfo
from crushpy.storage.session_rows import decode_parts, insert_session, refresh_conversation
from crushpy.storage.statement import Statement

_MAX_GAP = 2_000
"""Rows in sequence that cannot be read before the rest of a table is given up, if its end is unknown."""
_JSON = {"facts", "tail", "todos", "grants", "breaker", "body", "args", "usage"}
_HEADER_PAGES = slice(28, 40)
"""Where the first page says how many pages there are and which are free."""


def salvage(damaged: Path, target: Path, db: Database) -> int:
    """Fills `db`, the empty file `target`; how many messages it has then. `damaged` is not changed."""
    work = target.with_name(f"{target.name}.work")
    try:
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{damaged}{suffix}", f"{work}{suffix}")
        if not _is_readable(work):
            # The first page lists the tables. Each database of this version has them at the same pages.
            with target.open("rb") as new, work.open("r+b") as out:
                page = bytearray(new.read(4096))
                page[_HEADER_PAGES] = (work.stat().st_size // len(page)).to_bytes(4, "big") + bytes(8)
                out.write(page)
        with db.transaction(durable=True), closing(_connect(work)) as source:
            db.execute(Statement[Any]("PRAGMA defer_foreign_keys = ON"))
            _copy_rows(source, db)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{work}{suffix}").unlink(missing_ok=True)
    return db.execute(sql.COUNT_ROWS["message"]).scalar()


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA writable_schema = ON")  # otherwise a file that was cut short is refused
    return connection


def _is_readable(file: Path) -> bool:
    try:
        with closing(_connect(file)) as connection:
            connection.execute("SELECT 1 FROM session, message").fetchone()
    except sqlite3.DatabaseError as error:
        return "no such table" not in str(error) and "malformed" in str(error)
    return True


def _copy_rows(source: sqlite3.Connection, db: Database) -> None:
    for table in sql.COUNT_ROWS:  # each row after those it refers to
        for row in _rows(source, table):
            with suppress(sqlite3.IntegrityError, sqlite3.ProgrammingError, msgspec.MsgspecError):
                _check_json(row)
                db.execute(sql.SAVE_ROW[table], **row)
    for row in db.execute(sql.LIST_LOST_SESSIONS).all():
        # A session whose row is lost, while messages of it are not.
        head = (row.id, row.id, None, "root", 0, "(recovered)", str(Path.home()), row.model, "auto")
        insert_session(db, SessionInfo(*head, "", row.began, row.ended))
    for row in list(db.execute(Statement[Any]("PRAGMA foreign_key_check")).dicts()):
        table = row["table"]
        change = f"DELETE FROM {table}" if table != "session" else "UPDATE session SET parent_id = NULL"  # noqa: S608
        db.execute(Statement[Any](f"{change} WHERE rowid = :row"), row=row["rowid"])
    db.execute(sql.COUNT_MESSAGES_AGAIN)
    db.execute(sql.QUEUE_ALL_MESSAGES)
    for session in db.execute(sql.LIST_SESSION_IDS).scalars():
        refresh_conversation(db, session)


def _rows(source: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table in order; once one cannot be read, each of the others is looked up by itself."""
    number, every = 0, f'SELECT rowid AS "row", * FROM {table}'  # noqa: S608  # our own names
    with suppress(sqlite3.Error):
        for row in map(dict, source.execute(f"{every} ORDER BY rowid")):
            number = row.pop("row")
            yield row
        return
    last = None
    with suppress(sqlite3.Error):
        last = source.execute(f"{every} ORDER BY rowid DESC LIMIT 1").fetchone()["row"]
    gap = 0
    while number < last if last is not None else gap < _MAX_GAP:
        number, gap = number + 1, gap + 1
        with suppress(sqlite3.Error):
            for row in map(dict, source.execute(f"{every} WHERE rowid = ?", (number,))):
                gap = 0
                del row["row"]
                yield row


def _check_json(row: dict[str, Any]) -> None:
    """Raises if a damaged text would make the rest of a session unreadable."""
    for name in _JSON & row.keys():
        if row[name] is not None:
            msgspec.json.decode(row[name])
    if "parts" in row:
        decode_parts(row["parts"])
