"""Adds messages and the tool calls they answer. For the storage thread, inside a transaction."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crushpy.core.messages import Data, Message, ToolCall, Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import message_to_row, to_json
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import CallStart
from crushpy.storage.session_rows import count_messages, require_session

NO_STARTS: Mapping[str, CallStart] = MappingProxyType({})
NO_FACTS: Mapping[str, Data] = MappingProxyType({})
_NO_USAGE = Usage()
_OPEN = {"ended_at": None, "is_error": None, "result_id": None}


def append_messages(
    db: Database,
    session_id: str,
    *messages: Message,
    starts: Mapping[str, CallStart] = NO_STARTS,
    facts: Mapping[str, Data] = NO_FACTS,
) -> None:
    """`starts`: of messages that answer a call whose start is not stored yet, by message id. `facts`: of
    those messages whose facts are known."""
    now = time.time()
    usage = sum((message.usage for message in messages if message.usage), _NO_USAGE)
    counted = db.execute(
        sql.COUNT_MESSAGES, session=session_id, now=now, many=len(messages), **usage_values(usage)
    )
    require_session(db, counted.rowcount, session_id)
    count_messages(db, session_id, now, len(messages))
    db.leases.renew(session_id)
    db.execute_many(
        sql.INSERT_MESSAGE,
        [{**message_to_row(session_id, message), "of_session": session_id} for message in messages],
    )
    db.execute_many(sql.QUEUE_MESSAGE, [{"message": message.id} for message in messages])
    add_facts(db, {message.id: facts[message.id] for message in messages if message.id in facts})
    if any(message.role == "assistant" for message in messages):
        db.execute(sql.DELETE_DRAFT, session=session_id)
    ended: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for message in messages:
        if (result := message.result) is None:
            continue
        if (start := starts.get(message.id)) is not None:
            run = _run_to_row(session_id, start.message_id, start.call, start.at)
            runs.append(run | {"ended_at": now, "is_error": result.is_error, "result_id": message.id})
            continue
        ending = {"session": session_id, "call": encodable(result.call_id), "now": now}
        ended.append(ending | {"failed": result.is_error, "answer": message.id})
    db.execute_many(sql.END_TOOL_RUN, ended)
    db.execute_many(sql.INSERT_TOOL_RUN, runs)


def begin_calls(db: Database, session_id: str, calls: Sequence[tuple[str, ToolCall]]) -> None:
    """Calls, each of a message, are about to run."""
    now = time.time()
    found = db.execute(sql.SESSION_EXISTS, session=session_id).scalar()
    require_session(db, 1 if found else 0, session_id)
    db.leases.renew(session_id)
    rows = [_run_to_row(session_id, message_id, call, now) for message_id, call in calls]
    db.execute_many(sql.INSERT_TOOL_RUN, rows)


def add_facts(db: Database, facts: Mapping[str, Data]) -> None:
    """The facts of stored messages, by message id."""
    rows = [{"message": message, "facts": to_json(found)} for message, found in facts.items()]
    db.execute_many(sql.ADD_FACTS, rows)


def usage_values(usage: Usage) -> dict[str, float]:
    return {
        "new_input_tokens": usage.input_tokens,
        "new_output_tokens": usage.output_tokens,
        "new_cache_read_tokens": usage.cache_read_tokens,
        "new_cache_write_tokens": usage.cache_write_tokens,
        "new_cost": usage.cost,
    }


def _run_to_row(session_id: str, message_id: str, call: ToolCall, at: float) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "message_id": message_id,
        "call_id": encodable(call.id),
        "name": encodable(call.name),
        "args": to_json(call.args),
        "started_at": at,
        **_OPEN,
    }
