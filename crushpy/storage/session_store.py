"""`store.sessions`: sessions, and conversations as lists show them."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from crushpy.core.access import Mode
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, Todo, Usage
from crushpy.security.sanitize import clean, encodable
from crushpy.storage import deletion
from crushpy.storage.codec import folder_key, json_text, session_from_row
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import BreakerState, ConversationEntry, SessionInfo
from crushpy.storage.session_rows import (
    append_messages,
    drop_prompt,
    find_continuation,
    find_prompt,
    insert_session,
    keep_prompt,
    load_lineage,
    refresh_conversation,
    refresh_conversation_of,
    require_session,
    usage_values,
)
from crushpy.storage.storage_thread import Subject, stored

_LISTED = frozenset({"title", "model", "end_reason"})
"""Columns that the list of conversations depends on."""
_ENTRY_FIELDS = ConversationEntry.__struct_fields__[1:]
_MAX_SHOWN = 5
"""Sessions that an error lists if an id is ambiguous."""
_NO_LIMIT = 2**31 - 1
_DELETION_INDEX_S = 0.2
"""Time that a deletion spends on the index."""
_DELETION_PAUSE_S = 0.003
"""The least time between the steps of a deletion in SQLite: other processes only poll for their turn."""


class SessionStore(Subject):
    @stored
    def create(self, info: SessionInfo, first: Message | None = None, facts: Data | None = None) -> None:
        """Stores a new session, and its first message (with its facts): both or neither."""
        with self._db.transaction(durable=True, session=info.root_id):
            insert_session(self._db, info)
            refresh_conversation_of(self._db, info.id)
            if first is not None:
                known = {first.id: facts} if facts is not None else {}
                append_messages(self._db, info.id, first, facts=known)

    @stored
    def find(self, id_or_prefix: str) -> SessionInfo:
        """The session with this id, or the only one whose id starts so. `UsageError` if there is none."""
        return self._find(id_or_prefix)

    def _find(self, id_or_prefix: str) -> SessionInfo:
        wanted = encodable(id_or_prefix.strip().lower())
        hint = "`crushpy sessions list --all` lists all ids."
        if not wanted:
            raise UsageError("the session id is empty", hint)
        rows = self._db.execute(sql.FIND_SESSIONS_FROM, start=wanted, many=_MAX_SHOWN + 1).all()
        found = [session_from_row(row) for row in rows if row.id.startswith(wanted)]
        if not found:
            raise UsageError(f"there is no session {wanted!r}", hint)
        if found[0].id == wanted or len(found) == 1:
            return found[0]
        names = ", ".join(f"{info.id} ({clean(info.title)[:40]})" for info in found[:_MAX_SHOWN])
        more = ", ..." if len(found) > _MAX_SHOWN else ""
        raise UsageError(f"several sessions start with {wanted!r}: {names}{more}", "Give more of the id.")

    @stored
    def find_latest(self, cwd: str) -> SessionInfo | None:
        """The session to continue in this folder: the most recently updated one that has not ended."""
        row = self._db.execute(sql.FIND_LATEST_TIP, folder=folder_key(cwd)).first()
        return session_from_row(row) if row else None

    @stored
    def find_tip(self, id_or_prefix: str) -> SessionInfo:
        """The session at the end of the boundaries that follow this one; those undone do not count."""
        info = self._find(id_or_prefix)
        seen = {info.id}
        while True:
            child = find_continuation(self._db, info.id)
            if child is None or child in seen:  # a cycle ends here
                return info
            seen.add(child)
            info = self._find(child)

    # --- lists -----------------------------------------------------------------------------------------

    @stored
    def list_tips(
        self, cwd: str | None = None, limit: int | None = None, after: SessionInfo | None = None
    ) -> list[SessionInfo]:
        """Conversations of this folder (or all), newest first, each as the session at its tip, which counts
        the messages of all sessions that led to it. `after` is the last one of the previous page."""
        values: dict[str, Any] = {
            "many": _NO_LIMIT if limit is None else limit,
            "moment": float("inf"),
            "root": "",
        }
        if after is not None:
            values |= {"moment": after.updated_at, "root": after.root_id}
        if cwd is None:
            rows = self._db.execute(sql.LIST_TIPS, **values)
        else:
            rows = self._db.execute(sql.LIST_FOLDER_TIPS, **values, folder=folder_key(cwd))
        return [session_from_row(row) for row in rows]

    @stored
    def list_conversations(self, cwd: str | None = None, limit: int | None = None) -> list[ConversationEntry]:
        """The same as light rows."""
        many = _NO_LIMIT if limit is None else limit
        if cwd is None:
            rows = self._db.execute(sql.LIST_CONVERSATIONS, many=many)
        else:
            rows = self._db.execute(sql.LIST_FOLDER_CONVERSATIONS, many=many, folder=folder_key(cwd))
        return [
            ConversationEntry(id=row.tip_id, **{name: getattr(row, name) for name in _ENTRY_FIELDS})
            for row in rows
        ]

    @stored
    def load_lineage(self, session_id: str) -> list[SessionInfo]:
        """This session and those it continues, the first of them first."""
        return load_lineage(self._db, session_id)

    @stored
    def load_conversation(self, root_id: str) -> list[SessionInfo]:
        """Every session of a conversation, oldest first: continuations, branches, tasks."""
        return self._load_conversation(root_id)

    def _load_conversation(self, root_id: str) -> list[SessionInfo]:
        return [session_from_row(row) for row in self._db.execute(sql.LIST_SESSIONS, root=root_id)]

    @stored
    def load_descendants(self, session_id: str) -> list[SessionInfo]:
        """This session and all its descendants."""
        whole = self._load_conversation(self._find(session_id).root_id)
        found: dict[str, SessionInfo] = {}
        while True:
            grown = {one.id: one for one in whole if one.id == session_id or one.parent_id in found}
            if len(grown) == len(found):
                return list(found.values())
            found = grown

    # --- changes ---------------------------------------------------------------------------------------

    @stored
    def update(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        compaction: str | None = None,
        system: str | None = None,
        todos: tuple[Todo, ...] | None = None,
        grants: tuple[str, ...] | None = None,
        breaker: BreakerState | None = None,
        mode: Mode | Literal[""] | None = None,
        end_reason: str | None = None,
    ) -> None:
        """Changes what is given. An `end_reason` ends the session; an empty one reopens it."""
        changes: dict[str, Any] = {
            "title": encodable(title) if title is not None else None,
            "model": model,
            "compaction": compaction,
            "mode": mode,
            "end_reason": end_reason,
            "todos": json_text(todos) if todos is not None else None,
            "grants": json_text(grants) if grants is not None else None,
            "breaker": json_text(breaker) if breaker is not None else None,
        }
        given = {name for name, value in changes.items() if value is not None}
        if not given and system is None:
            return
        with self._db.transaction(session=session_id):
            before = find_prompt(self._db, session_id) if system is not None else ""
            changes["system_hash"] = keep_prompt(self._db, system) if system is not None else None
            changes["ended_at"] = time.time() if end_reason else None
            values = {f"new_{name}": value for name, value in changes.items()}
            updated = self._db.execute(sql.UPDATE_SESSION, session=session_id, **values)
            require_session(self._db, updated.rowcount, session_id)
            if before and before != changes["system_hash"]:
                drop_prompt(self._db, before)
            if not _LISTED.isdisjoint(given):
                refresh_conversation_of(self._db, session_id)

    @stored
    def add_usage(self, session_id: str, usage: Usage) -> None:
        """Adds the usage of a model call that left no message."""
        with self._db.transaction(session=session_id):
            counted = self._db.execute(sql.ADD_SESSION_USAGE, session=session_id, **usage_values(usage))
            require_session(self._db, counted.rowcount, session_id)

    @stored
    def rename_conversation(self, root_id: str, title: str) -> None:
        """Gives every session of a conversation this title, except its tasks."""
        with self._db.transaction(session=root_id):
            renamed = self._db.execute(sql.RENAME_SESSIONS, root=root_id, new_title=encodable(title))
            require_session(self._db, renamed.rowcount, root_id)
            refresh_conversation(self._db, root_id)

    async def delete_conversation(self, root_id: str) -> int:
        """Deletes every session of a conversation with all its records; how many sessions there were.

        It is invisible from the first moment on. Its rows are overwritten before this returns, in steps
        between which others write; if the index is large, some of its words are removed later
        (`run_maintenance`).
        """
        deleted = await self._thread.run(lambda: deletion.mark_deleted(self._db, root_id))
        while await self._delete_step(lambda: deletion.delete_rows(self._db)):
            pass
        deadline = time.monotonic() + _DELETION_INDEX_S
        while await self._delete_step(lambda: deletion.merge_index(self._db)):
            if time.monotonic() > deadline:
                break
        return deleted

    async def _delete_step(self, job: Callable[[], bool]) -> bool:
        """Whether work is left. Lets others write."""
        started = time.monotonic()
        left = await self._thread.run(job)
        if left and self._thread.location.server is None:
            await asyncio.sleep(max(_DELETION_PAUSE_S, time.monotonic() - started))
        return left
