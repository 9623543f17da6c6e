"""Sessions, their messages and the tool calls that were begun. Lives on the storage thread."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from crushpy.core.access import Mode
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, Todo, ToolCall, Usage
from crushpy.security.sanitize import clean, encodable
from crushpy.storage import statements
from crushpy.storage.call_records import CallStart
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import ConversationTable
from crushpy.storage.fact_table import FactTable
from crushpy.storage.lease_holder import LeaseHolder
from crushpy.storage.records import BreakerState, SessionInfo, StorageError
from crushpy.storage.row_mapping import MESSAGE_COLUMNS, message_from_row, message_to_row, session_from_row
from crushpy.storage.search_index import SearchIndex
from crushpy.storage.system_prompts import SystemPrompts, insert_session

NO_STARTS: Mapping[str, CallStart] = {}
NO_FACTS: Mapping[str, Data] = {}
_NO_USAGE = Usage()
_LISTED = frozenset({"title", "model", "ended_at"})
"""Columns that the list of conversations shows or goes by."""
_SHOWN = 5
"""How many sessions an error lists where an id fits several."""


class SessionTable:
    def __init__(
        self,
        connection: Connection,
        leases: LeaseHolder,
        conversations: ConversationTable,
        index: SearchIndex,
        facts: FactTable,
    ) -> None:
        self._connection = connection
        self._leases = leases
        self._conversations = conversations
        self._index = index
        self._facts = facts
        self._prompts = SystemPrompts(connection)
        self._execute = connection.execute

    # --- sessions --------------------------------------------------------------------------------------

    def create(self, info: SessionInfo, first: Message | None, facts: Mapping[str, Data]) -> None:
        with self._connection.transaction(durable=True, session=info.root_id):
            insert_session(self._connection, info)
            self._conversations.changed(info.id)
            if first is not None:
                self.append(info.id, first, facts=facts)

    def find(self, id_or_prefix: str) -> SessionInfo:
        wanted = encodable(id_or_prefix.strip().lower())
        hint = "`crushpy sessions list --all` shows the ids there are."
        if not wanted:
            raise UsageError("the session id is empty", hint)
        rows = self._execute(statements.SESSIONS_FROM, {"start": wanted, "many": _SHOWN + 1}).all()
        found = [session_from_row(row) for row in rows if row.id.startswith(wanted)]
        if not found:
            raise UsageError(f"there is no session {wanted!r}", hint)
        if found[0].id == wanted or len(found) == 1:
            return found[0]
        names = ", ".join(f"{info.id} ({clean(info.title)[:40]})" for info in found[:_SHOWN])
        more = ", ..." if len(found) > _SHOWN else ""
        raise UsageError(f"several sessions start with {wanted!r}: {names}{more}", "Give more of the id.")

    def lineage(self, session_id: str) -> list[SessionInfo]:
        found: dict[str, SessionInfo] = {}
        wanted: str | None = session_id
        while wanted is not None and wanted not in found:  # a circle of parents cannot hang the walk
            row = self._execute(statements.SESSION, {"session": wanted}).first()
            if row is None:
                break
            found[wanted] = session_from_row(row)
            wanted = None if row.kind == "task" else row.parent_id  # a task starts with a clean sheet
        return list(found.values())[::-1]

    def update(
        self,
        session_id: str,
        *,
        title: str | None,
        model: str | None,
        compaction: str | None,
        system: str | None,
        todos: tuple[Todo, ...] | None,
        grants: tuple[str, ...] | None,
        breaker: BreakerState | None,
        mode: Mode | Literal[""] | None,
        end_reason: str | None,
    ) -> None:
        changes: dict[str, Any] = {"title": encodable(title) if title is not None else None}
        changes |= {"model": model, "compaction": compaction, "mode": mode, "end_reason": end_reason}
        changes["todos"] = to_column(todos) if todos is not None else None
        changes["grants"] = to_column(grants) if grants is not None else None
        changes["breaker"] = to_column(breaker) if breaker is not None else None
        changes = {name: value for name, value in changes.items() if value is not None}
        if end_reason is not None:
            changes["ended_at"] = time.time() if end_reason else None
        if not changes and system is None:
            return
        with self._connection.transaction(session=session_id):
            before = ""
            if system is not None:
                before = self._prompts.of(session_id)
                changes |= {"system": "", "system_hash": self._prompts.keep(system)}
            this = {"session": session_id}
            self.require(
                self._connection.update("session", statements.THIS_SESSION, this, changes), session_id
            )
            if before and before != changes["system_hash"]:
                self._prompts.drop(before)
            if not _LISTED.isdisjoint(changes):
                self._conversations.changed(session_id)

    def add_usage(self, session_id: str, usage: Usage) -> None:
        """Counts a model call that left no message."""
        with self._connection.transaction(session=session_id):
            counted = self._execute(statements.ADD_USAGE, {"session": session_id, **_figures(usage)})
            self.require(counted.rowcount, session_id)

    # --- messages and tool runs ------------------------------------------------------------------------

    def messages(self, session_id: str) -> list[Message]:
        columns = MESSAGE_COLUMNS.format(self._connection.dialect.bytes_of.format("parts"))
        rows = self._execute(statements.MESSAGES.format(columns), {"session": session_id})
        return [message_from_row(row) for row in rows]

    def add_message(self, session_id: str, message: Message, facts: Mapping[str, Data]) -> None:
        with self._connection.transaction(durable=message.role == "user", session=session_id):
            self.append(session_id, message, facts=facts)

    def begin_calls(self, session_id: str, calls: Sequence[tuple[str, ToolCall]]) -> None:
        """Inside the running transaction: calls, each of a message, are about to run."""
        now = time.time()
        rows = [_run_to_row(session_id, message_id, call, now) for message_id, call in calls]
        found = self._execute(statements.SESSION_EXISTS, {"session": session_id}).scalar()
        self.require(1 if found else 0, session_id)
        self._leases.beat(session_id)
        self._connection.insert("tool_run", *rows)

    def begun_calls(self, session_id: str) -> set[str]:
        return set(self._execute(statements.OPEN_RUNS, {"session": session_id}).scalars())

    def append(
        self,
        session_id: str,
        *messages: Message,
        starts: Mapping[str, CallStart] = NO_STARTS,
        facts: Mapping[str, Data] = NO_FACTS,
    ) -> None:
        """Adds messages inside the running transaction. `starts`: by the ids of those that answer a call
        whose start is not stored yet. `facts`: by the ids of those whose facts are known."""
        now = time.time()
        usage = sum((message.usage for message in messages if message.usage), _NO_USAGE)
        counted = self._execute(
            statements.COUNT_MESSAGES,
            {"session": session_id, "now": now, "many": len(messages), **_figures(usage)},
        )
        self.require(counted.rowcount, session_id)
        self._conversations.counted(session_id, now, len(messages))
        self._leases.beat(session_id)
        as_text = self._connection.as_text
        rows = [message_to_row(session_id, message, as_text) for message in messages]
        self._execute(statements.INSERT_MESSAGE, rows)
        del rows  # they may be large
        self._index.queue([message.id for message in messages])
        self._facts.add({message.id: facts[message.id] for message in messages if message.id in facts})
        if any(message.role == "assistant" for message in messages):
            self._execute(statements.DROP_DRAFT, {"session": session_id})
        ended: list[dict[str, Any]] = []
        runs: list[dict[str, Any]] = []
        for message in messages:
            if (result := message.result) is None:
                continue
            if (start := starts.get(message.id)) is not None:
                run = _run_to_row(session_id, start.message_id, start.call, start.at)
                runs.append(run | {"ended_at": now, "is_error": result.is_error, "result_id": message.id})
                continue
            closing = {"session": session_id, "call": encodable(result.call_id), "now": now}
            ended.append(closing | {"failed": result.is_error, "answer": message.id})
        if ended:
            self._execute(statements.CLOSE_RUN, ended)
        self._connection.insert("tool_run", *runs)

    def require(self, found: int, session_id: str) -> None:
        """Raises where no row was found."""
        if not found:
            raise StorageError(
                f"session {session_id} is not in the database {self._connection.place}",
                "It was deleted meanwhile. Start a new session.",
            )


def _run_to_row(session_id: str, message_id: str, call: ToolCall, at: float) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "message_id": message_id,
        "call_id": encodable(call.id),
        "name": encodable(call.name),
        "args": to_column(call.args),
        "started_at": at,
    }


def _figures(usage: Usage) -> dict[str, float]:
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
        "price": usage.cost,
    }
