"""Long sessions, a page of messages at a time, and their cuts. Lives on the storage thread."""

from sqlalchemy import select

from crushpy.messages import Cut, Message
from crushpy.storage.connection import Connection
from crushpy.storage.row_mapping import message_from_row
from crushpy.storage.session_table import SessionTable
from crushpy.storage.tables import cuts, messages

_M = messages.c
PAGE = 50
"""Messages that are read at a time."""


class MessagePages:
    def __init__(self, connection: Connection, session_table: SessionTable) -> None:
        self._execute = connection.execute
        self._sessions = session_table

    def page(self, session_id: str, last: int, after: int) -> tuple[list[Message], int]:
        """Some messages of a session up to number `last`, those behind place `after`, and the next place."""
        statement = (
            select(messages)
            .where(_M.session_id == session_id, _M.seq > after, _M.number <= last)
            .order_by(_M.seq)
            .limit(PAGE)
        )
        rows = self._execute(statement).all()
        return [message_from_row(row) for row in rows], rows[-1].seq if rows else after

    def lineage_cuts(self, session_id: str) -> list[Cut]:
        """The cuts of a session and of those it continues, the first session's first."""
        found: list[Cut] = []
        for session in self._sessions.lineage(session_id):
            rows = self._execute(select(cuts).where(cuts.c.session_id == session.id))
            found += [Cut(row.message_id, row.head, row.tail, row.kind, row.made_after) for row in rows]
        return found
