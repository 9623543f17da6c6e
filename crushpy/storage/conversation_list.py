"""Conversations as a list shows them: light rows, a name, the ends of a session. On the storage thread."""

from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, bindparam, func, or_, select, update

from crushpy.messages import Message, Text, parts_from_json
from crushpy.sanitize import encodable
from crushpy.storage import statements
from crushpy.storage.codec import folder_key
from crushpy.storage.records import ConversationRow
from crushpy.storage.row_mapping import message_from_row
from crushpy.storage.session_table import SessionTable
from crushpy.storage.sqlite_connection import SqliteConnection
from crushpy.storage.tables import messages, sessions

if TYPE_CHECKING:
    from sqlalchemy import Select

    Statement = Select[*tuple[Any, ...]]

_S = sessions.c
_M = messages.c

_parent = sessions.alias()

_SESSIONS = 200
"""So many of the latest sessions are looked through for prompts."""
_REPEATED = 4
"""So many times more messages are looked at than prompts are wanted: some are there twice."""
_LONGEST = 20_000
"""A longer prompt (most of it was pasted) is not worth being offered again."""


def _rows(tips: "Statement") -> "Statement":
    """`tips` without what is heavy (system prompts), in the same order."""
    return tips.with_only_columns(
        _S.id,
        _S.root_id,
        _S.title,
        _S.cwd,
        _S.model,
        _S.updated_at,
        _S.generation,
        _S.message_count,
        _S.imported,
    )


def _counts(tips: "Statement") -> "Statement":
    """For each tip that continues another session, the messages of all sessions that led to it."""
    last = tips.with_only_columns(_S.id, _S.parent_id, _S.message_count).subquery()
    up = select(last.c.id.label("tip"), last.c.id, last.c.parent_id, last.c.message_count)
    led = up.where(last.c.parent_id.is_not(None)).cte(recursive=True)
    # A union of different rows only: a circle of parents, which nobody should have, ends here.
    led = led.union(
        select(led.c.tip, _parent.c.id, _parent.c.parent_id, _parent.c.message_count).join(
            led, _parent.c.id == led.c.parent_id
        )
    )
    return select(led.c.tip, func.sum(led.c.message_count).label("total")).group_by(led.c.tip)


_ROWS, _ROWS_OF_FOLDER = _rows(statements.TIPS), _rows(statements.TIPS_OF_FOLDER)
_COUNTS, _COUNTS_OF_FOLDER = _counts(statements.TIPS), _counts(statements.TIPS_OF_FOLDER)

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
    .where(_S.cwd == bindparam("folder"), _S.kind != "task")  # what a task is asked is the model's
    .order_by(_S.updated_at.desc())
    .limit(_SESSIONS)
)
_PROMPTS = (
    select(_M.parts)
    .where(_M.session_id.in_(_LATEST_SESSIONS), _M.role == "user", func.length(_M.parts) <= _LONGEST)
    .order_by(_M.created_at.desc(), _M.number.desc())
    .limit(bindparam("rows"))
)
_RENAME = update(sessions).where(_S.root_id == bindparam("root"), _S.kind != "task")


class ConversationList:
    def __init__(self, connection: SqliteConnection, sessions: SessionTable) -> None:
        self._connection = connection
        self._sessions = sessions

    def rows(self, cwd: str | None, limit: int | None) -> list[ConversationRow]:
        values: dict[str, Any] = {"many": -1 if limit is None else limit}
        rows, counts = _ROWS, _COUNTS
        if cwd is not None:
            values["folder"] = folder_key(cwd)
            rows, counts = _ROWS_OF_FOLDER, _COUNTS_OF_FOLDER
        found = self._connection.execute(rows, values).all()
        totals = {row.tip: row.total for row in self._connection.execute(counts, values)}
        return [
            ConversationRow(
                id=row.id,
                root_id=row.root_id,
                title=row.title,
                cwd=row.cwd,
                model=row.model,
                updated_at=row.updated_at,
                generations=row.generation + 1,
                messages=totals.get(row.id, row.message_count),
                imported=row.imported,
            )
            for row in found
        ]

    def rename(self, root_id: str, title: str) -> None:
        with self._connection.transaction():
            renamed = self._connection.execute(_RENAME.values(title=encodable(title)), {"root": root_id})
            self._sessions.require(renamed.rowcount, root_id)

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
