"""A database with many conversations: one made through the store, the others from its rows."""

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.scale.database import execute, fresh_database, server
from benchmarks.scale.message_texts import texts
from crushpy.core.messages import Message, Text, ToolCall, ToolResult
from crushpy.security.sanitize import to_json
from crushpy.storage import search_store
from crushpy.storage.copying import copy_storage
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

MODEL = "openai/bench"
MESSAGES = 12
"""Of each conversation."""
SYSTEM = "You are a coding agent. " * 400
"""About 10 KB, as system prompts are."""
FIRST = "first0000000"
_masters: list[TemporaryDirectory[str]] = []


@contextmanager
def many_conversations(many: int, *, indexed: bool = False) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with so many conversations, and the environment that finds them. All of it is a copy."""
    with TemporaryDirectory(prefix="scale-") as top, fresh_database(_template(many, indexed)) as where:
        home, cwd = Path(top) / "home", Path(top) / "work"
        home.mkdir(mode=0o700)
        cwd.mkdir()
        (home / "config.toml").write_text(f'model = "{MODEL}"\nsmall_model = "demo/tour"\n')
        if not where:
            shutil.copyfile(_indexed(many) if indexed else _master(many), home / "crushpy.db")
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRUSHPY")}
        env |= {"CRUSHPY_HOME": str(home), "HOME": top, **where}
        for table in ("session", "conversation"):
            execute(env, f"UPDATE {table} SET cwd = '{cwd}'")
        yield cwd, env


@cache
def _master(many: int) -> Path:
    """Made once for all rows of the table that need this many."""
    folder = TemporaryDirectory(prefix="scale-master-")
    _masters.append(folder)
    file = Path(folder.name) / "crushpy.db"
    asyncio.run(_make_first(file))
    _multiply(file, many)
    return file


@cache
def _indexed(many: int) -> Path:
    file = _master(many)
    whole = file.with_name("indexed.db")
    shutil.copyfile(file, whole)
    asyncio.run(_tidy(Store(whole)))
    return whole


@cache
def _template(many: int, indexed: bool) -> str:
    """The database of a server that is copied; none where there is no server."""
    running = server()
    if running is None:
        return ""
    name = running.fresh(template=_template(many, False) if indexed else "")
    store = Store(Path("/nonexistent"), running.url(name))
    asyncio.run(_tidy(store) if indexed else _copy(Store(_master(many)), store))
    running.execute("VACUUM ANALYZE", name)
    return name


async def _copy(source: Store, target: Store) -> None:
    await copy_storage(source, target, Path("/nonexistent"), lambda *_: None)
    await source.close()
    await target.close()


async def _tidy(store: Store) -> None:
    with _large_steps():
        while await store.run_maintenance():
            pass
    await store.close()


@contextmanager
def _large_steps() -> Iterator[None]:
    """No other process writes: the index may take in as much at once as is quickest."""
    before = search_store.BATCH_ROWS, search_store._BATCH_CHARS
    search_store.BATCH_ROWS, search_store._BATCH_CHARS = 2_000, 4_000_000
    try:
        yield
    finally:
        search_store.BATCH_ROWS, search_store._BATCH_CHARS = before


async def _make_first(file: Path) -> None:
    store = Store(file)
    now = time.time() - 1e6
    info = SessionInfo(FIRST, FIRST, None, "root", 0, "first", "/work", MODEL, "auto", SYSTEM, now, now)
    messages = [_message(number, text, now) for number, text in enumerate(texts(1, MESSAGES))]
    await store.sessions.create(info, messages[0])
    for message in messages[1:]:
        await store.messages.add(info.id, message)
    await store.close()


def _message(number: int, text: str, now: float) -> Message:
    role: Any = ("user", "assistant", "tool")[number % 3]
    return Message(f"{FIRST}{number:04}", role, _parts(number, text), now + number, MODEL, None, "", 100)


def _parts(number: int, text: str) -> Any:
    call = f"call_{number // 3}"
    match number % 3:
        case 0:
            return (Text(text[:200]),)
        case 1:
            return Text(text[:300]), ToolCall(
                call, "view", {"file_path": f"src/{text.split(maxsplit=1)[0]}.py"}
            )
        case _:
            return (ToolResult(call, "view", text),)


def _multiply(file: Path, many: int) -> None:
    """Every row of the first conversation again, under another id and with words of its own."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("BEGIN")
        session, conversation = (
            dict(db.execute(f"SELECT * FROM {table}").fetchone()) for table in ("session", "conversation")
        )
        messages = [dict(row) for row in db.execute("SELECT * FROM message ORDER BY seq")]
        for row in messages:
            del row["number"]
        names = [f"c{number:011}" for number in range(1, many)]
        at = {name: session["updated_at"] + number for number, name in enumerate(names)}
        _insert(
            db,
            "session",
            (
                session | {"id": name, "root_id": name, "title": name, "updated_at": at[name]}
                for name in names
            ),
        )
        _insert(
            db,
            "conversation",
            (
                conversation | {"root_id": name, "tip_id": name, "title": name, "updated_at": at[name]}
                for name in names
            ),
        )
        _insert(
            db,
            "message",
            (
                row
                | {
                    "id": f"{name}{place:04}",
                    "session_id": name,
                    "parts": to_json(_parts(place, text)).decode(),
                }
                for number, name in enumerate(names)
                for place, (row, text) in enumerate(zip(messages, texts(number + 2, MESSAGES), strict=True))
            ),
        )
        db.execute("INSERT OR IGNORE INTO index_queue SELECT number FROM message")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _insert(db: sqlite3.Connection, table: str, rows: Iterator[dict[str, Any]]) -> None:
    first = next(rows, None)
    if first is None:
        return
    columns = ", ".join(f'"{name}"' for name in first)
    statement = f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(first))})"
    db.execute(statement, tuple(first.values()))
    db.executemany(statement, (tuple(row.values()) for row in rows))
