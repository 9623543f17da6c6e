"""Between a row and the frozen data that leaves the room."""

from collections.abc import Callable
from typing import Any

import msgspec

from crushpy.core.messages import Message, Part, Todo, Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import decoded, encoded_parts, folder_key, to_column
from crushpy.storage.records import BoundaryInfo, BreakerState, SessionInfo
from crushpy.storage.rows import Row

_parts = msgspec.json.Decoder(tuple[Part, ...])
_usage = msgspec.json.Decoder(Usage)
_todos = msgspec.json.Decoder(tuple[Todo, ...])
_coverage = msgspec.json.Decoder(dict[str, tuple[int, int, int]])
_pair = msgspec.json.Decoder(tuple[int, int])
_grants = msgspec.json.Decoder(tuple[str, ...])
_breaker = msgspec.json.Decoder(BreakerState)

AsText = Callable[[bytes | bytearray], str | bytes | bytearray]

MESSAGE_COLUMNS = "id, role, {} AS parts, created_at, model, usage, finish, tokens"
"""What a message is read from; `{}` is its `parts`, as text or as bytes."""
SESSION_COLUMNS = (
    *("id", "root_id", "parent_id", "kind", "generation", "title", "cwd", "model", "compaction"),
    *("created_at", "updated_at", "ended_at", "end_reason", "message_count"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost"),
    *("todos", "grants", "imported", "breaker", "mode"),
)
"""What a session is read from, beside its prompt."""


def session_to_row(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "root_id": info.root_id,
        "parent_id": info.parent_id,
        "kind": info.kind,
        "generation": info.generation,
        "title": encodable(info.title),
        "cwd": folder_key(info.cwd),
        "model": info.model,
        "compaction": info.compaction,
        "system": encodable(info.system),
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "ended_at": info.ended_at,
        "end_reason": info.end_reason,
        "message_count": info.message_count,
        "input_tokens": info.usage.input_tokens,
        "output_tokens": info.usage.output_tokens,
        "cache_read_tokens": info.usage.cache_read_tokens,
        "cache_write_tokens": info.usage.cache_write_tokens,
        "cost": info.usage.cost,
        "todos": to_column(info.todos),
        "grants": to_column(info.grants),
        "imported": info.imported,
        "breaker": to_column(info.breaker),
        "mode": info.mode,
    }


def session_from_row(row: Row) -> SessionInfo:
    return SessionInfo(
        id=row.id,
        root_id=row.root_id,
        parent_id=row.parent_id,
        kind=row.kind,
        generation=row.generation,
        title=row.title,
        cwd=row.cwd,
        model=row.model,
        compaction=row.compaction,
        system=row.system,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
        end_reason=row.end_reason,
        message_count=row.message_count,
        usage=Usage(
            row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens, row.cost
        ),
        todos=_todos.decode(row.todos),
        grants=_grants.decode(row.grants),
        imported=row.imported,
        breaker=_breaker.decode(row.breaker),
        mode=row.mode,
    )


def message_to_row(session_id: str, message: Message, as_text: AsText = decoded) -> dict[str, Any]:
    """All but `seq`, which the statement finds by itself. `as_text`: where that casts `parts` to text."""
    return {
        "id": message.id,
        "session_id": session_id,
        "role": message.role,
        "parts": as_text(encoded_parts(message.parts)),
        "model": message.model,
        "usage": to_column(message.usage) if message.usage is not None else None,
        "finish": message.finish,
        "tokens": message.tokens,
        "created_at": message.created_at,
    }


def usage_from_column(usage: str) -> Usage:
    return _usage.decode(usage)


def message_from_row(row: Row) -> Message:
    return Message(
        id=row.id,
        role=row.role,
        parts=_parts.decode(row.parts),
        created_at=row.created_at,
        model=row.model,
        usage=_usage.decode(row.usage) if row.usage is not None else None,
        finish=row.finish,
        tokens=row.tokens,
    )


def boundary_to_row(boundary: BoundaryInfo) -> dict[str, Any]:
    row: dict[str, Any] = {field: getattr(boundary, field) for field in boundary.__struct_fields__}
    row["problem"] = encodable(boundary.problem)
    return row | {
        "tail": to_column(boundary.tail),
        "coverage": to_column(boundary.coverage),
        "lineage": to_column(boundary.lineage),
    }


def boundary_from_row(row: Row) -> BoundaryInfo:
    given: dict[str, Any] = {field: getattr(row, field) for field in BoundaryInfo.__struct_fields__}
    given["tail"] = _grants.decode(row.tail)
    given["coverage"] = _coverage.decode(row.coverage)
    given["lineage"] = _pair.decode(row.lineage)
    given["prepared"] = bool(row.prepared)  # SQLite knows numbers only
    return BoundaryInfo(**given)
