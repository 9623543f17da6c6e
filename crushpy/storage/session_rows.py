"""Rows that several subjects write, and the frozen data of `records.py` to and from rows.

Functions for the storage thread, inside the transaction of the caller if they write.
"""

import time
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from crushpy.core.boundary import FORK, StoredBoundary
from crushpy.core.messages import Data, Message, Part, ToolCall, Usage
from crushpy.security.sanitize import encodable, to_json
from crushpy.storage.database import Database, session_missing
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import SessionRow
from crushpy.storage.records import EVERYTHING, SessionInfo, StorageError

decode_parts = msgspec.json.Decoder(tuple[Part, ...]).decode
Value = TypeVar("Value", bound=msgspec.Struct)
_CHANGEABLE = (
    *("title", "model", "compaction", "mode", "budget", "todos", "grants", "breaker"),
    *("system_hash", "end_reason", "ended_at"),
)


def json_text(value: object) -> str:
    return to_json(value).decode()


def folder_key(cwd: str) -> str:
    """A folder as rows name it, for storing and for looking up."""
    # `?` and not the mark of `encodable`: stored rows are found by it.
    return cwd.encode("utf-8", "replace").decode()


def usage_figures(row: Any) -> Usage:
    """The usage columns of a row; NULL is zero."""
    return Usage(*(getattr(row, name, 0) or 0 for name in Usage.__struct_fields__))


def from_row(kind: type[Value], row: Any, **known: Any) -> Value:
    """A value from the columns with the names of its fields, except those that are `known`."""
    for name, decode in _decoders(kind).items():
        if name not in known:
            column = getattr(row, name)
            known[name] = column if decode is None or column is None else decode(column)
    return kind(**known)


def to_row(value: msgspec.Struct) -> dict[str, Any]:
    """The columns of a value, by the names of its fields."""
    row = msgspec.structs.asdict(value)
    for name, decode in _decoders(type(value)).items():
        if decode is not None and row[name] is not None:
            row[name] = json_text(row[name])
    return row


@cache
def _decoders(kind: type[msgspec.Struct]) -> dict[str, Callable[[str], Any] | None]:
    """For each field how its column is decoded: one that is neither a text nor a number holds JSON."""
    types: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {
        name: None if _is_plain(of_field) else msgspec.json.Decoder(of_field).decode
        for name, of_field in types.items()
    }


def _is_plain(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_plain, get_args(kind)))
    return kind in (str, int, float, bool, NoneType) or get_origin(kind) is Literal


def session_to_row(info: SessionInfo) -> dict[str, Any]:
    """Every column; those that `SessionInfo` does not have are NULL."""
    row = dict.fromkeys(SessionRow.__struct_fields__) | to_row(info) | msgspec.structs.asdict(info.usage)
    del row["usage"]
    return row | {"cwd": folder_key(info.cwd)}


def session_from_row(row: SessionRow) -> SessionInfo:
    return from_row(SessionInfo, row, usage=usage_figures(row))


def insert_session(db: Database, info: SessionInfo) -> None:
    """A new session, and its prompt if no other session has the same."""
    row = session_to_row(info) | {"system": "", "system_hash": keep_prompt(db, info.system)}
    db.execute(sql.INSERT_SESSION, **row)


def change_session(db: Database, session_id: str, row: Mapping[str, Any]) -> None:
    """Changes what can change in a session and is in `row` and not None; `ended_at` with the `end_reason`."""
    values = {f"new_{name}": row.get(name) for name in _CHANGEABLE}
    require_session(db, db.execute(sql.UPDATE_SESSION, session=session_id, **values).rowcount, session_id)


def require_session(db: Database, found: int | None, session_id: str) -> None:
    """Raises if no row was found."""
    if not found:
        raise session_missing(db, session_id)


# --- system prompts


def keep_prompt(db: Database, prompt: str) -> str:
    """Stores a text unless it exists. Its hash."""
    if not prompt:
        return ""
    prompt = encodable(prompt)
    name = sha256(prompt.encode()).hexdigest()
    db.execute(sql.KEEP_PROMPT, hash=name, text=prompt)
    return name


def find_prompt(db: Database, session_id: str) -> str:
    """The hash of a session's prompt; empty if it has none."""
    return db.execute(sql.FIND_PROMPT_HASH, session=session_id).scalar() or ""


def drop_prompt(db: Database, name: str) -> None:
    """After a session stopped using it: deletes the text with its last use."""
    if name:
        db.execute(sql.LOCK_PROMPT, hash=name).scalar()
        db.execute(sql.DELETE_PROMPT, hash=name)


# --- conversations


def refresh_conversation_of(db: Database, session_id: str) -> None:
    root = db.execute(sql.FIND_ROOT, session=session_id).scalar()
    if root is not None:
        refresh_conversation(db, root)


def refresh_conversation(db: Database, root_id: str) -> None:
    """Derives the row again from the sessions."""
    db.execute(sql.DELETE_CONVERSATION, root=root_id)
    tip = db.execute(sql.CHOOSE_TIP, root=root_id).first()
    if tip is None:
        return
    db.execute(
        sql.INSERT_CONVERSATION,
        **msgspec.structs.asdict(tip),
        root_id=root_id,
        is_open=tip.ended_at is None,
        messages=db.execute(sql.SUM_LINEAGE_MESSAGES, tip=tip.tip_id).scalar() or 0,
    )


# --- lineages


def find_continuation(db: Database, session_id: str) -> str | None:
    """The child in which a session continues."""
    return db.execute(sql.FIND_CONTINUATION, session=session_id).scalar()


def refuse_second(db: Database, parent_id: str) -> None:
    """A session continues in one child only."""
    child = find_continuation(db, parent_id)
    if child is not None:
        raise StorageError(
            f"session {parent_id} continues in {child} already",
            f"Another process continued it: open {child}, or undo that compaction.",
        )


def find_opening(db: Database, session_id: str) -> StoredBoundary | None:
    """The boundary (or fork) that opened this session; branches that returned into it do not count."""
    row = db.execute(sql.FIND_BOUNDARY_OF_CHILD, session=session_id).first()
    return from_row(StoredBoundary, row) if row else None


def load_lineage(db: Database, session_id: str) -> list[SessionInfo]:
    """This session and those it continues, the first of them first."""
    found: dict[str, SessionInfo] = {}
    wanted: str | None = session_id
    while wanted is not None and wanted not in found:  # a cycle of parents ends here
        row = db.execute(sql.FIND_SESSION, session=wanted).first()
        if row is None:
            break
        found[wanted] = session_from_row(row)
        wanted = None if row.kind == "task" else row.parent_id  # a task does not continue its caller
    return list(found.values())[::-1]


def load_reach(db: Database, session_id: str) -> list[tuple[str, int]]:
    """The sessions that led here, the first first, each with the number of its last message that did.

    Messages that a session got after an undo, or after a branch left it, do not count.
    """
    lineage = load_lineage(db, session_id)
    left = [_last_number(db, parent, child) for parent, child in pairwise(lineage)]
    return list(
        zip((session.id for session in lineage), (*left, EVERYTHING), strict=False)
    )  # empty: not stored


def _last_number(db: Database, parent: SessionInfo, child: SessionInfo) -> int:
    """The number of the last message of `parent` before `child` left it. Numbers grow; clocks may not."""
    boundary = find_opening(db, child.id)
    if boundary is not None and boundary.trigger == FORK:
        ids = json_text(boundary.tail)
        return db.execute(sql.FIND_LAST_NUMBER_AMONG, session=parent.id, ids=ids).scalar() or 0
    first = db.execute(sql.FIND_FIRST_NUMBER_OF_SESSION, session=child.id).scalar()
    if first is not None:
        return first - 1
    moment = child.created_at
    return db.execute(sql.FIND_LAST_NUMBER_BEFORE, session=parent.id, moment=moment).scalar() or 0


def append_messages(
    db: Database,
    session_id: str,
    *messages: Message,
    facts: Mapping[str, Data | None] = MappingProxyType({}),
    imported_at: float | None = None,
) -> None:
    """`facts`: of messages, by id; None or missing if not known. Imported messages are not counted as written
    now, and their model becomes the session's."""
    now = time.time() if imported_at is None else imported_at
    models = [message.model for message in messages if message.model and imported_at is not None]
    usage = sum((message.usage for message in messages if message.usage), Usage())
    listed = {"session": session_id, "now": now, "many": len(messages)}
    model = models[-1] if models else None
    counted = db.execute(sql.COUNT_MESSAGES, new_model=model, **listed, **usage_values(usage))
    require_session(db, counted.rowcount, session_id)
    if not db.execute(sql.COUNT_CONVERSATION_MESSAGES, **listed).rowcount:
        refresh_conversation_of(db, session_id)  # a fork or a branch that is continued
    places = {"session_id": session_id, "of_session": session_id}
    db.execute_many(sql.INSERT_MESSAGE, [to_row(message) | places for message in messages])
    db.execute_many(sql.QUEUE_MESSAGE, [{"message": message.id} for message in messages])
    add_facts(db, {message.id: facts.get(message.id) for message in messages})
    if any(message.role == "assistant" for message in messages):
        db.execute(sql.DELETE_DRAFT, session=session_id)
    ended = [
        {"session": session_id, "now": now, "call": one.call_id, "failed": one.is_error, "answer": message.id}
        for message in messages
        if (one := message.result) is not None
    ]
    db.execute_many(sql.END_TOOL_RUN, ended)


def begin_call(
    db: Database, session_id: str, message_id: str, call: ToolCall, at: float | None = None
) -> None:
    """A call of a message is about to run, or ran `at` that time."""
    require_session(db, db.execute(sql.SESSION_EXISTS, session=session_id).scalar(), session_id)
    what = {"message_id": message_id, "call_id": call.id, "name": call.name, "args": json_text(call.args)}
    what |= dict.fromkeys(("ended_at", "is_error", "result_id"))
    started = time.time() if at is None else at
    db.execute(sql.INSERT_TOOL_RUN, session_id=session_id, started_at=started, **what)


def add_facts(db: Database, facts: Mapping[str, Data | None]) -> None:
    """The facts of stored messages, by message id; None if they are not known."""
    known = {message: found for message, found in facts.items() if found is not None}
    rows = [{"message": message, "facts": json_text(found)} for message, found in known.items()]
    db.execute_many(sql.ADD_FACTS, rows)


def usage_values(usage: Usage) -> dict[str, float]:
    return {f"new_{name}": value for name, value in msgspec.structs.asdict(usage).items()}
