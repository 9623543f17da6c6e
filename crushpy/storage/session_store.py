"""`store.sessions`: sessions, conversations as lists show them, and deletion; `store.imports`.

A deleted conversation is invisible at once, and removed from the file in small steps. Work that is left when
a process ends is continued by the next one that is idle.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from crushpy.core.access import Mode
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, Todo, Usage
from crushpy.security.sanitize import clean, encodable
from crushpy.storage import records, session_rows
from crushpy.storage.audit_store import append_audit
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.search_store import BATCH_ROWS, indexed_texts, remove_texts
from crushpy.storage.storage_thread import Subject, stored, written
from crushpy.util.posix import login_name

_LISTED = frozenset({"title", "model", "end_reason"})
"""Columns that the list of conversations depends on."""
_MAX_SHOWN = 5
"""Sessions that an error lists if an id is ambiguous."""
_NO_LIMIT = 2**31 - 1
_MERGE = "merge"
"""The maintenance that removes deleted words from the index; its state is begin or go on."""
_DELETION_INDEX_S = 0.2
"""Time that a deletion spends on the index."""
_DELETION_PAUSE_S = 0.003
"""The least time between the steps of a deletion in SQLite: other processes only poll for their turn."""


class SessionChanges(TypedDict, total=False):
    """What can change in a stored session."""

    title: str
    model: str
    compaction: str
    mode: Mode | Literal[""] | None
    budget: str
    todos: tuple[Todo, ...]
    grants: tuple[str, ...]
    breaker: records.BreakerState
    system: str | None
    end_reason: records.EndReason


class SessionStore(Subject):
    @stored
    def create(
        self, info: records.SessionInfo, first: Message | None = None, facts: Data | None = None
    ) -> None:
        """Stores a new session, and its first message (with its facts): both or neither."""
        with self._db.transaction(durable=True, session=info.root_id):
            session_rows.insert_session(self._db, info)
            session_rows.refresh_conversation_of(self._db, info.id)
            if first is not None:
                session_rows.append_messages(self._db, info.id, first, facts={first.id: facts})

    def _find(self, id_or_prefix: str) -> records.SessionInfo:
        """The session with this id, or the only one whose id starts so. `UsageError` if there is none."""
        wanted = encodable(id_or_prefix.strip().lower())
        hint = "`crushpy sessions list --all` lists all ids."
        if not wanted:
            raise UsageError("the session id is empty", hint)
        rows = self._db.execute(sql.FIND_SESSIONS_FROM, start=wanted, many=_MAX_SHOWN + 1).all()
        found = [session_rows.session_from_row(row) for row in rows if row.id.startswith(wanted)]
        if not found:
            raise UsageError(f"there is no session {wanted!r}", hint)
        if found[0].id == wanted or len(found) == 1:
            return found[0]
        names = ", ".join(f"{info.id} ({clean(info.title)[:40]})" for info in found[:_MAX_SHOWN])
        more = ", ..." if len(found) > _MAX_SHOWN else ""
        raise UsageError(f"several sessions start with {wanted!r}: {names}{more}", "Give more of the id.")

    find = stored(_find)

    @stored
    def find_latest(self, cwd: str) -> records.SessionInfo | None:
        """The session to continue in this folder: the most recently updated one that has not ended."""
        row = self._db.execute(sql.FIND_LATEST_TIP, folder=session_rows.folder_key(cwd)).first()
        return session_rows.session_from_row(row) if row else None

    @stored
    def find_tip(self, id_or_prefix: str) -> records.SessionInfo:
        """The session at the end of the boundaries that follow this one; those undone do not count."""
        info = self._find(id_or_prefix)
        seen = {info.id}
        while True:
            child = session_rows.find_continuation(self._db, info.id)
            if child is None or child in seen:  # a cycle ends here
                return info
            seen.add(child)
            info = self._find(child)

    # --- lists -----------------------------------------------------------------------------------------

    def _list(self, cwd: str | None = None, limit: int | None = None) -> list[records.ConversationEntry]:
        """Conversations of this folder (or all), newest first."""
        statement = sql.LIST_CONVERSATIONS if cwd is None else sql.LIST_FOLDER_CONVERSATIONS
        many = _NO_LIMIT if limit is None else limit
        return self._db.execute(statement, folder=session_rows.folder_key(cwd or ""), many=many).all()

    list_conversations = stored(_list)

    @stored
    def list_tips(self, cwd: str | None = None, limit: int | None = None) -> list[records.SessionInfo]:
        """The same, each as the session at its tip, which counts the messages of all that led to it."""
        tips: list[records.SessionInfo] = []
        for listed in self._list(cwd, limit):
            for row in self._db.execute(sql.FIND_SESSION, session=listed.id):  # another process may delete it
                info = session_rows.session_from_row(row)
                tips.append(msgspec.structs.replace(info, message_count=listed.messages))
        return tips

    @stored
    def list_forks(self, roots: Sequence[str]) -> list[records.SessionInfo]:
        """The forks in these conversations, newest first."""
        rows = self._db.execute(sql.LIST_FORKS, roots=session_rows.json_text(roots))
        return [session_rows.session_from_row(row) for row in rows]

    @stored
    def load_lineage(self, session_id: str) -> list[records.SessionInfo]:
        """This session and those it continues, the first of them first."""
        return session_rows.load_lineage(self._db, session_id)

    @stored
    def load_conversation(self, root_id: str) -> list[records.SessionInfo]:
        """Every session of a conversation, oldest first: continuations, branches, forks, tasks."""
        return list(map(session_rows.session_from_row, self._db.execute(sql.LIST_SESSIONS, root=root_id)))

    # --- changes ---------------------------------------------------------------------------------------

    @stored
    def update(self, session_id: str, **changes: Unpack[SessionChanges]) -> None:
        """Changes what is given and not None. An `end_reason` ends the session; an empty one reopens it."""
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            return
        with self._db.transaction(session=session_id):
            row: dict[str, Any] = {
                name: value if isinstance(value, str) else session_rows.json_text(value)
                for name, value in given.items()
            }
            row["ended_at"] = time.time() if row.get("end_reason") else None
            before = session_rows.find_prompt(self._db, session_id) if "system" in row else ""
            if "system" in row:
                row["system_hash"] = session_rows.keep_prompt(self._db, row["system"])
            session_rows.change_session(self._db, session_id, row)
            if before != row.get("system_hash", ""):
                session_rows.drop_prompt(self._db, before)
            if not _LISTED.isdisjoint(given):
                session_rows.refresh_conversation_of(self._db, session_id)

    @written()
    def add_usage(self, session_id: str, usage: Usage) -> None:
        """Adds the usage of a model call that left no message."""
        counted = self._db.execute(
            sql.ADD_SESSION_USAGE, session=session_id, **session_rows.usage_values(usage)
        )
        session_rows.require_session(self._db, counted.rowcount, session_id)

    @written()
    def rename_conversation(self, root_id: str, title: str) -> None:
        """Gives every session of a conversation this title, except its tasks."""
        renamed = self._db.execute(sql.RENAME_SESSIONS, root=root_id, new_title=title)
        session_rows.require_session(self._db, renamed.rowcount, root_id)
        session_rows.refresh_conversation(self._db, root_id)

    async def delete_conversation(self, root_id: str) -> None:
        """Deletes every session of a conversation with all its records.

        It is invisible from the first moment on. Its rows are overwritten before this returns, in steps
        between which others write; if the index is large, some of its words are removed later
        (`run_maintenance`).
        """
        await self._mark_deleted(root_id)
        while await self._delete_step(lambda: delete_rows(self._db)):
            pass
        deadline = time.monotonic() + _DELETION_INDEX_S
        while await self._delete_step(lambda: merge_index(self._db)):
            if time.monotonic() > deadline:
                break

    @written(durable=True)
    def _mark_deleted(self, root_id: str) -> None:
        mark_deleted(self._db, root_id)

    async def _delete_step(self, job: Callable[[], bool]) -> bool:
        """Whether work is left. Lets others write."""
        started = time.monotonic()
        left = await self._thread.run(job)
        if left and self._thread.location.server is None:
            await asyncio.sleep(max(_DELETION_PAUSE_S, time.monotonic() - started))
        return left


# --- deletion


def mark_deleted(db: Database, root_id: str) -> None:
    """Inside a transaction: hides a conversation, and records that in its audit."""
    marked = db.execute(sql.MARK_DELETED, root=root_id).rowcount
    if marked:
        db.execute(sql.DELETE_CONVERSATION, root=root_id)
        append_audit(db, root_id, [records.AuditEntry("deleted", {"by": login_name(), "sessions": marked})])
        db.execute(sql.DELETE_LEASES_OF_CONVERSATION, root=root_id)
        db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="begin")


def delete_rows(db: Database) -> bool:
    """Deletes some of what is marked, overwritten if possible. False if nothing is left of it."""
    session = db.execute(sql.FIND_DELETED_SESSION, many=1).scalar()
    if session is None:
        return False
    texts = indexed_texts(db.execute(sql.LIST_FIRST_MESSAGES, session=session, many=BATCH_ROWS))
    numbers = session_rows.json_text([text.number for text in texts])
    with db.secure_delete(), db.transaction():
        remaining = set(db.execute(sql.LOCK_MESSAGES, numbers=numbers).scalars())  # others may delete as well
        remove_texts(db, [text for text in texts if text.number in remaining])
        db.execute(sql.DELETE_MESSAGES, numbers=numbers)
        if not texts and not db.execute(sql.DELETE_TOOL_RUNS, session=session, many=BATCH_ROWS).rowcount:
            prompt = session_rows.find_prompt(db, session)
            db.execute(sql.DELETE_SESSION, session=session)
            session_rows.drop_prompt(db, prompt)
            db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="begin")  # others may have finished it
    return True


def merge_index(db: Database) -> bool:
    """Removes some of the deleted words from the index. False if none is left in it."""
    state = db.execute(sql.FIND_MAINTENANCE, name=_MERGE).scalar()
    if state is None:
        return False
    more = db.full_text.merge_some(begin=state == "begin")
    if state == "begin" or not more:
        with db.transaction():
            if more:
                db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="go on")
            else:
                db.execute(sql.DELETE_MAINTENANCE, work=_MERGE)
    return more


# --- `store.imports`: conversations of other agents, one transaction each. Messages keep their own times;
# nothing is counted as written just now.


class ImportStore(Subject):
    @stored
    def find_record(self, source: str, foreign_id: str) -> records.ImportRecord | None:
        """How far that session of another agent was imported; None if it was not."""
        return self._db.execute(sql.FIND_IMPORT, source=source, foreign=foreign_id).first()

    @stored
    def find_last_message(self, root_id: str) -> str:
        """The last imported message of a conversation; empty if it was not imported."""
        return self._db.execute(sql.FIND_LAST_IMPORTED, root=root_id).scalar() or ""

    @stored
    def was_continued(self, record: records.ImportRecord) -> bool:
        """Whether an imported conversation was continued here."""
        if session_rows.find_continuation(self._db, record.tip_id) is not None:
            return True
        last = self._db.execute(sql.FIND_LAST_MESSAGE_ID, session=record.tip_id, many=1).scalar()
        return last != record.last_message

    @written()
    def set_folder(self, root_id: str, folder: str) -> None:
        """Lists an imported conversation in this folder, beside its own."""
        self._db.execute(sql.SET_IMPORT_FOLDER, root=root_id, new_folder=session_rows.folder_key(folder))

    @stored
    def write(self, conversation: records.ImportedConversation, replaced: str) -> None:
        """Stores a conversation, and deletes the one named by `replaced`, if any, in one transaction."""
        db, root_id = self._db, conversation.record.root_id
        with db.transaction(durable=True, session=replaced or root_id):
            if replaced:
                mark_deleted(db, replaced)
            for session in conversation.sessions:
                session_rows.insert_session(db, session.info)
                if (opened := session.boundary) is not None:
                    ended = {"session": opened.parent_id, "moment": opened.created_at}
                    db.execute(sql.END_SESSION, **ended, reason=opened.trigger)
                    db.execute(sql.INSERT_BOUNDARY, **session_rows.to_row(opened))
                latest = max((session.info.updated_at, *(message.created_at for message in session.messages)))
                session_rows.append_messages(db, session.info.id, *session.messages, imported_at=latest)
            db.execute(sql.RENAME_SESSIONS, root=root_id, new_title=conversation.title)
            record = msgspec.structs.asdict(conversation.record)
            record["folder"] = session_rows.folder_key(conversation.record.folder)
            db.execute(sql.SAVE_IMPORT, **record)
            session_rows.refresh_conversation(db, root_id)
