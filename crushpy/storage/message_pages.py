"""Long sessions, a page of messages at a time, and their cuts. Lives on the storage thread."""

from crushpy.core.messages import Cut, Message
from crushpy.storage.connection import Connection
from crushpy.storage.row_mapping import message_from_row
from crushpy.storage.session_table import SessionTable

_PAGE = (
    "SELECT * FROM message WHERE session_id = :session AND seq > :after AND number <= :last "
    "ORDER BY seq LIMIT :many"
)
_CUTS = "SELECT * FROM cut WHERE session_id = :session"
PAGE = 50
"""Messages that are read at a time."""


class MessagePages:
    def __init__(self, connection: Connection, session_table: SessionTable) -> None:
        self._execute = connection.execute
        self._sessions = session_table

    def page(self, session_id: str, last: int, after: int) -> tuple[list[Message], int]:
        """Some messages of a session up to number `last`, those behind place `after`, and the next place."""
        values = {"session": session_id, "after": after, "last": last, "many": PAGE}
        rows = self._execute(_PAGE, values).all()
        return [message_from_row(row) for row in rows], rows[-1].seq if rows else after

    def lineage_cuts(self, session_id: str) -> list[Cut]:
        """The cuts of a session and of those it continues, the first session's first."""
        found: list[Cut] = []
        for session in self._sessions.lineage(session_id):
            rows = self._execute(_CUTS, {"session": session.id})
            found += [Cut(row.message_id, row.head, row.tail, row.kind, row.made_after) for row in rows]
        return found
