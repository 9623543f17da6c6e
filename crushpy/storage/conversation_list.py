"""Conversations as a list shows them: light rows, a name, the ends of a session. On the storage thread."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import BindParameter, Row, Select, and_, bindparam, func, literal, or_, select, update

from crushpy.messages import Message, Text, parts_from_json
from crushpy.sanitize import encodable
from crushpy.storage.codec import folder_key
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED, ConversationTable
from crushpy.storage.records import ConversationRow, SessionInfo
from crushpy.storage.row_mapping import message_from_row, session_from_row
from crushpy.storage.session_table import SessionTable
from crushpy.storage.system_prompts import SESSIONS
from crushpy.storage.tables import conversations, messages, sessions

Statement = Select[*tuple[Any, ...]]

_C = conversations.c
_S = sessions.c
_M = messages.c

_SESSIONS = 200
"""So many of the latest sessions are looked through for prompts."""
_REPEATED = 4
"""So many times more messages are looked at than prompts are wanted: some are there twice."""
_LONGEST = 20_000
"""A longer prompt (most of it was pasted) is not worth being offered again."""

_ROWS = select(conversations).order_by(_C.updated_at.desc(), _C.root_id)
_TIPS = SESSIONS.join(conversations, _C.tip_id == _S.id).order_by(_C.updated_at.desc(), _C.root_id)
_LIGHT_TIPS = _TIPS.with_only_columns(
    *(column for column in _S if column.name != "system"), literal("").label("system")
)
_COUNTED_TIPS = _TIPS.with_only_columns(
    *(column for column in _S if column.name not in ("system", "message_count")),
    literal("").label("system"),
    _C.messages.label("message_count"),
)
_BEHIND = and_(
    _C.updated_at <= bindparam("moment"),
    or_(_C.updated_at < bindparam("moment"), _C.root_id > bindparam("root")),
)
_IN_FOLDER = _C.cwd == bindparam("folder")

_session: BindParameter[Any] = bindparam("session")
_many: BindParameter[Any] = bindparam("many")
_last = select(func.max(_M.seq)).where(_M.session_id == _session).scalar_subquery()
_ENDS = (
    select(messages)
    .where(_M.session_id == _session, or_(_M.seq <= _many, _M.seq > _last - _many))
    .order_by(_M.seq)
)
_LATEST_SESSIONS = (
    select(_S.id)
    .where(
        _S.cwd == bindparam("folder"), _S.kind.not_in(("task", DELETED))
    )  # what a task is asked is the model's
    .order_by(_S.updated_at.desc())
    .limit(_SESSIONS)
)
_PROMPTS = (
    select(_M.parts)
    .where(_M.session_id.in_(_LATEST_SESSIONS), _M.role == "user", func.length(_M.parts) <= _LONGEST)
    .order_by(_M.created_at.desc(), _M.number.desc())
    .limit(bindparam("rows"))
)
_RENAME = update(sessions).where(_S.root_id == bindparam("root"), _S.kind.not_in(("task", DELETED)))


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
            for row in self._selected(_ROWS, cwd, limit)
        ]

    def tips(self, cwd: str | None, limit: int | None) -> list[SessionInfo]:
        """The same, each as the session at its tip, without its system prompt."""
        return [session_from_row(row) for row in self._selected(_LIGHT_TIPS, cwd, limit)]

    def tip_page(self, cwd: str | None, many: int, after: SessionInfo | None) -> list[SessionInfo]:
        """A page of those, behind `after`, with the messages of the whole line counted."""
        statement = _COUNTED_TIPS if after is None else _COUNTED_TIPS.where(_BEHIND)
        behind = {} if after is None else {"moment": after.updated_at, "root": after.root_id}
        return [session_from_row(row) for row in self._selected(statement, cwd, many, behind)]

    def latest(self, cwd: str) -> SessionInfo | None:
        """Where somebody spoke last in this folder, of the conversations that have not ended."""
        found = self._selected(_TIPS.where(_C.is_open), cwd, 1)
        return session_from_row(found[0]) if found else None

    def _selected(
        self,
        statement: Statement,
        cwd: str | None,
        limit: int | None,
        others: Mapping[str, Any] = MappingProxyType({}),
    ) -> Sequence[Row[Any]]:
        if cwd is not None:
            statement = statement.where(_IN_FOLDER)
        if limit is not None:
            statement = statement.limit(bindparam("many"))
        values = {"folder": folder_key(cwd) if cwd is not None else "", "many": limit, **others}
        return self._connection.execute(statement, values).all()

    def rename(self, root_id: str, title: str) -> None:
        with self._connection.transaction(session=root_id):
            renamed = self._connection.execute(_RENAME.values(title=encodable(title)), {"root": root_id})
            self._sessions.require(renamed.rowcount, root_id)
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
