"""Sessions and messages to put into a store."""

import time
from typing import Any

from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Text, ToolCall, ToolResult, Usage
from crushpy.storage.records import SessionInfo


def a_session(cwd: str = "/work", **fields: Any) -> SessionInfo:
    """A new session, a root unless `fields` says otherwise."""
    own = fields.pop("id", None) or new_id()
    now = fields.pop("now", time.time())
    given: dict[str, Any] = {
        "id": own,
        "root_id": own,
        "parent_id": None,
        "kind": "root",
        "generation": 0,
        "title": "fix the test",
        "cwd": cwd,
        "model": "openai/one",
        "compaction": "auto",
        "system": "You are crushpy.",
        "created_at": now,
        "updated_at": now,
    }
    return SessionInfo(**{**given, **fields})


def said(text: str = "hello") -> Message:
    """What a user wrote."""
    return Message(new_id(), "user", (Text(text),), created_at=time.time())


def replied(text: str, *calls: ToolCall, usage: Usage | None = None) -> Message:
    """What a model answered."""
    finish = "tool_calls" if calls else "stop"
    return Message(new_id(), "assistant", (Text(text), *calls), time.time(), "openai/one", usage, finish, 7)


def answered(call: ToolCall, text: str = "done", *, is_error: bool = False) -> Message:
    """The result of a call."""
    return Message(new_id(), "tool", (ToolResult(call.id, call.name, text, is_error),), time.time())
