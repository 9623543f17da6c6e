"""Conversations as a list shows them: light rows, a name, the ends of a session. On the storage thread."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crushpy.core.messages import Message, Text, parts_from_json
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import folder_key
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED, ConversationTable
from crushpy.storage.records import ConversationRow, SessionInfo
from crushpy.storage.row_mapping import SESSION_COLUMNS, message_from_row, session_from_row
from crushpy.storage.rows import Row
from crushpy.storage.session_table import SessionTable
from crushpy.storage.system_prompts import PROMPT

_SESSIONS = 200
"""So many of the latest sessions are looked through for prompts."""
_REPEATED = 4
"""So many times more messages are looked at than prompts are wanted: some are there twice."""
_LONGEST = 20_000
"""A longer prompt (most of it was pasted) is not worth being offered again."""

_session = tuple(f"session.{name}" for name in SESSION_COLUMNS)
# An outer join, though every tip is there: SQLite would begin with all sessions else.
_TIPS = "SELECT {} FROM conversation LEFT JOIN session ON session.id = conversation.tip_id"
_FULL_TIPS = _TIPS.format(", ".join((*_session, PROMPT)))
_LIGHT_TIPS = _TIPS.format(", ".join((*_session, "'' AS system")))
_COUNTED_TIPS = _LIGHT_TIPS.replace("session.message_count", "conversation.messages AS message_count")
_BEHIND = (
    "conversation.updated_at <= :moment "
    "AND (conversation.updated_at < :moment OR conversation.root_id > :root)"
)
_ENDS = """
    SELECT * FROM message WHERE session_id = :session
    AND (seq <= :many OR seq > (SELECT max(seq) FROM message WHERE session_id = :session) - :many)
    ORDER BY seq
"""
_OURS = f"kind NOT IN ('task', '{DELETED}')"
"""What a task is asked is the model's."""
_PROMPTS = f"""
    SELECT parts FROM message WHERE session_id IN (
        SELECT id FROM session WHERE cwd = :folder AND {_OURS} ORDER BY updated_at DESC LIMIT {_SESSIONS}
    ) AND role = 'user' AND length(parts) <= {_LONGEST}
    ORDER BY created_at DESC, number DESC LIMIT :rows
"""  # noqa: S608  # our own words


class ConversationList:
    def __init__(self, connection: Connection, session_table: SessionTable, table: ConversationTable) -> None:
        self._connection = connection
        self._sessions = session_table
        self._table = table

    def rows(self, cwd: str | None, limit: int | None) -> list[ConversationRow]:
        """Light rows, one for each conversation, newest first."""
        return [
            ConversationRow(
                id=row.tip_id,
                root_id=row.root_id,
                title=row.title,
                cwd=row.cwd,
                model=row.model,
                updated_at=row.updated_at,
                generations=row.generations,
                messages=row.messages,
                imported=row.imported,
            )
            for row in self._selected("SELECT * FROM conversation", cwd, limit)
        ]

    def tips(self, cwd: str | None, limit: int | None) -> list[SessionInfo]:
        """The same, each as the session at its tip, without its system prompt."""
        return [session_from_row(row) for row in self._selected(_LIGHT_TIPS, cwd, limit)]

    def tip_page(self, cwd: str | None, many: int, after: SessionInfo | None) -> list[SessionInfo]:
        """A page of those, behind `after`, with the messages of the whole line counted."""
        if after is None:
            return [session_from_row(row) for row in self._selected(_COUNTED_TIPS, cwd, many)]
        behind = {"moment": after.updated_at, "root": after.root_id}
        return [session_from_row(row) for row in self._selected(_COUNTED_TIPS, cwd, many, _BEHIND, behind)]

    def latest(self, cwd: str) -> SessionInfo | None:
        """Where somebody spoke last in this folder, of the conversations that have not ended."""
        found = self._selected(_FULL_TIPS, cwd, 1, "conversation.is_open")
        return session_from_row(found[0]) if found else None

    def _selected(
        self,
        statement: str,
        cwd: str | None,
        limit: int | None,
        where: str = "true",
        others: Mapping[str, Any] = MappingProxyType({}),
    ) -> Sequence[Row]:
        statement += f" WHERE {where}"
        if cwd is not None:
            statement += " AND conversation.cwd = :folder"
        statement += " ORDER BY conversation.updated_at DESC, conversation.root_id"
        if limit is not None:
            statement += " LIMIT :many"
        values = {"folder": folder_key(cwd) if cwd is not None else "", "many": limit, **others}
        return self._connection.execute(statement, values).all()

    def rename(self, root_id: str, title: str) -> None:
        with self._connection.transaction(session=root_id):
            where, changes = f"root_id = :root AND {_OURS}", {"title": encodable(title)}
            renamed = self._connection.update("session", where, {"root": root_id}, changes)
            self._sessions.require(renamed, root_id)
            self._table.refresh(root_id)

    def prompts(self, cwd: str, limit: int) -> list[str]:
        values = {"folder": folder_key(cwd), "rows": limit * _REPEATED}
        found: dict[str, None] = {}
        for row in self._connection.execute(_PROMPTS, values).all():
            text = "".join(part.text for part in parts_from_json(row.parts) if isinstance(part, Text))
            if text.strip():  # seeds and notes are nothing the user wrote
                found.setdefault(text)
        return list(found)[:limit][::-1]

    def ends(self, session_id: str, many: int) -> list[Message]:
        rows = self._connection.execute(_ENDS, {"session": session_id, "many": many})
        return [message_from_row(row) for row in rows]
