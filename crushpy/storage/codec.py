"""Converts the frozen data of `records.py` to and from rows: JSON text, and text that UTF-8 can encode."""

from typing import Any

import msgspec

from crushpy.core.boundary import FactCount, StoredBoundary
from crushpy.core.messages import Message, Part, Todo, Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.generated.rows import BoundaryRow, CandidateRow, DraftRow, MessageRow, SessionRow
from crushpy.storage.records import BreakerState, SessionInfo

_parts = msgspec.json.Decoder(tuple[Part, ...])
_usage = msgspec.json.Decoder(Usage)
_todos = msgspec.json.Decoder(tuple[Todo, ...])
_coverage = msgspec.json.Decoder(dict[str, FactCount])
_pair = msgspec.json.Decoder(tuple[int, int])
_texts = msgspec.json.Decoder(tuple[str, ...])
_breaker = msgspec.json.Decoder(BreakerState)
_FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_SESSION_JSON = {"todos": _todos, "grants": _texts, "breaker": _breaker}
_BOUNDARY_JSON = {"tail": _texts, "coverage": _coverage, "lineage": _pair}
_BOUNDARY_COLUMNS = dict(
    zip(StoredBoundary.__struct_fields__, StoredBoundary.__struct_encode_fields__, strict=True)
)
"""Column by field: in JSON a field has the name of its column."""
_SESSION_FIELDS = tuple(name for name in SessionInfo.__struct_fields__ if name != "usage")


def json_text(value: object) -> str:
    """`value` as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, from a file name or a reply that is not Unicode
        return msgspec.json.encode(encodable(msgspec.to_builtins(value))).decode()


def folder_key(cwd: str) -> str:
    """A folder as rows name it, for storing and for looking up."""
    # `?` and not the mark of `encodable`: stored rows are found by it.
    return cwd.encode("utf-8", "replace").decode()


def usage_from_json(usage: str) -> Usage:
    return _usage.decode(usage)


def usage_figures(row: Any) -> Usage:
    """The usage columns of a row; NULL is zero."""
    return Usage(*(getattr(row, name) or 0 for name in _FIGURES))


def session_to_row(info: SessionInfo) -> dict[str, Any]:
    """Every column; those that `SessionInfo` does not have are NULL."""
    row: dict[str, Any] = dict.fromkeys(SessionRow.__struct_fields__)
    row |= {name: getattr(info, name) for name in _SESSION_FIELDS}
    row |= {name: getattr(info.usage, name) for name in _FIGURES}
    row |= {name: json_text(getattr(info, name)) for name in _SESSION_JSON}
    return row | {"title": encodable(info.title), "cwd": folder_key(info.cwd)}


def session_from_row(row: SessionRow) -> SessionInfo:
    fields: dict[str, Any] = {name: getattr(row, name) for name in _SESSION_FIELDS}
    fields |= {name: decoder.decode(fields[name]) for name, decoder in _SESSION_JSON.items()}
    return SessionInfo(**fields, usage=usage_figures(row))


def message_to_row(session_id: str, message: Message) -> dict[str, Any]:
    """All but `seq`."""
    return {
        "id": message.id,
        "session_id": session_id,
        "role": message.role,
        "parts": json_text(message.parts),
        "model": message.model,
        "usage": json_text(message.usage) if message.usage is not None else None,
        "finish": message.finish,
        "tokens": message.tokens,
        "created_at": message.created_at,
    }


def message_from_row(row: MessageRow | DraftRow | CandidateRow) -> Message:
    return Message(
        id=row.id,
        role=row.role,  # pyright: ignore[reportArgumentType]
        parts=_parts.decode(row.parts),
        created_at=row.created_at,
        model=row.model,
        usage=_usage.decode(row.usage) if row.usage is not None else None,
        finish=row.finish,  # pyright: ignore[reportArgumentType]
        tokens=row.tokens,
    )


def boundary_to_row(boundary: StoredBoundary) -> dict[str, Any]:
    row: dict[str, Any] = {column: getattr(boundary, field) for field, column in _BOUNDARY_COLUMNS.items()}
    row |= {name: json_text(row[name]) for name in _BOUNDARY_JSON}
    return row | {"problem": encodable(boundary.problem)}


def boundary_from_row(row: BoundaryRow) -> StoredBoundary:
    columns = {column: getattr(row, column) for column in _BOUNDARY_COLUMNS.values()}
    columns |= {name: decoder.decode(columns[name]) for name, decoder in _BOUNDARY_JSON.items()}
    columns["prepared"] = bool(row.prepared)  # SQLite has numbers only
    return StoredBoundary(**{field: columns[column] for field, column in _BOUNDARY_COLUMNS.items()})
