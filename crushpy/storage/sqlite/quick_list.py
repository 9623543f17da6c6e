"""The list of conversations without SQLModel, whose import takes longer than reading the list.

Only for a file that is as this version made it; everything else is left to those who open it properly.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crushpy.messages import Todo, Usage
from crushpy.storage.codec import folder_key
from crushpy.storage.records import BreakerState, ConversationRow, SessionInfo
from crushpy.storage.sqlite.faults import DAMAGED
from crushpy.storage.sqlite.migrations import APPLICATION_ID, STEPS
from crushpy.storage.sqlite.patience import AT_A_TIME

T = TypeVar("T")

_ROWS = (
    "SELECT tip_id, root_id, title, cwd, model, updated_at, generations, messages, imported "
    "FROM conversation WHERE {where} ORDER BY updated_at DESC, root_id LIMIT :many"
)
_TIPS = (
    "SELECT s.id, s.root_id, s.parent_id, s.kind, s.generation, s.title, s.cwd, s.model, s.compaction, "
    "s.created_at, s.updated_at, s.ended_at, s.end_reason, c.messages, s.input_tokens, s.output_tokens, "
    "s.cache_read_tokens, s.cache_write_tokens, s.cost, s.todos, s.grants, s.imported, s.breaker, s.mode "
    "FROM conversation AS c CROSS JOIN session AS s ON s.id = c.tip_id "
    "WHERE {where} ORDER BY c.updated_at DESC, c.root_id LIMIT :many"
)
_FIELDS = (
    *("id", "root_id", "parent_id", "kind", "generation", "title", "cwd", "model", "compaction"),
    *("created_at", "updated_at", "ended_at", "end_reason", "message_count"),
)
_UNFINISHED = "SELECT 1 FROM chore WHERE name = 'copy'"
_BEHIND = "c.updated_at <= :moment AND (c.updated_at < :moment OR c.root_id > :root)"
_todos = msgspec.json.Decoder(tuple[Todo, ...])
_grants = msgspec.json.Decoder(tuple[str, ...])
_breaker = msgspec.json.Decoder(BreakerState)


def quick_rows(file: Path, cwd: str | None, limit: int | None) -> list[ConversationRow] | None:
    """The rows, newest first; None where the file has to be opened properly."""
    values = {"many": -1 if limit is None else limit, "folder": folder_key(cwd or "")}
    where = "true" if cwd is None else "cwd = :folder"

    def read(db: sqlite3.Connection) -> list[ConversationRow]:
        return [ConversationRow(*row) for row in db.execute(_ROWS.format(where=where), values)]

    return _read(file, read)


def quick_tips(
    file: Path, cwd: str | None, limit: int, after: SessionInfo | None
) -> list[SessionInfo] | None:
    """A page of the sessions at their tips, behind `after`; None where the file has to be opened properly."""
    values: dict[str, Any] = {"many": limit, "folder": folder_key(cwd or "")}
    conditions = ["true" if cwd is None else "c.cwd = :folder"]
    if after is not None:
        values |= {"moment": after.updated_at, "root": after.root_id}
        conditions.append(_BEHIND)
    statement = _TIPS.format(where=" AND ".join(conditions))
    return _read(file, lambda db: [_tip(row) for row in db.execute(statement, values)])


def _tip(row: tuple[Any, ...]) -> SessionInfo:
    fields: dict[str, Any] = dict(zip(_FIELDS, row[:14], strict=True))
    todos, grants, imported, breaker, mode = row[19:]
    return SessionInfo(
        **fields,
        system="",
        usage=Usage(*row[14:19]),
        todos=_todos.decode(todos),
        grants=_grants.decode(grants),
        imported=imported,
        breaker=_breaker.decode(breaker),
        mode=mode,
    )


def _read(file: Path, read: Callable[[sqlite3.Connection], T]) -> T | None:
    if not file.exists() or file.with_name(f"{file.name}{DAMAGED}").exists():
        return None
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=AT_A_TIME)
        ) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            mark = db.execute("PRAGMA application_id").fetchone()[0]
            if version != len(STEPS) or mark != APPLICATION_ID or db.execute(_UNFINISHED).fetchone():
                return None
            return read(db)
    except sqlite3.Error:
        return None
