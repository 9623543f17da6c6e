"""Replies that are still coming in: what a process that was killed had shown of them.

Lives on the storage thread. A draft is one row, written over and over, and goes with the transaction that
stores the reply itself.
"""

from crushpy.core.messages import Message
from crushpy.storage.connection import Connection
from crushpy.storage.row_mapping import message_from_row, message_to_row
from crushpy.storage.session_table import SessionTable

_KEEP = """
    INSERT INTO draft (id, session_id, role, parts, model, usage, finish, tokens, created_at)
    VALUES (:id, :session_id, :role, CAST(:parts AS TEXT), :model, :usage, :finish, :tokens, :created_at)
"""
_DROP = "DELETE FROM draft WHERE session_id = :session"
_FIND = "SELECT * FROM draft WHERE session_id = :session"


class Drafts:
    def __init__(self, connection: Connection, sessions: SessionTable) -> None:
        self._connection = connection
        self._sessions = sessions

    def keep(self, session_id: str, message: Message) -> None:
        """What has come of a reply so far, instead of what was kept before."""
        row = message_to_row(session_id, message, self._connection.as_text)
        with self._connection.transaction(session=session_id):
            self._connection.execute(_DROP, {"session": session_id})
            self._connection.execute(_KEEP, row)

    def drop(self, session_id: str) -> None:
        with self._connection.transaction(session=session_id):
            self._connection.execute(_DROP, {"session": session_id})

    def find(self, session_id: str) -> Message | None:
        row = self._connection.execute(_FIND, {"session": session_id}).first()
        return message_from_row(row) if row is not None else None

    def recover(self, session_id: str) -> Message | None:
        """Makes a message of what is left of a reply whose process is gone."""
        with self._connection.transaction(session=session_id):
            message = self.find(session_id)
            if message is not None:
                self._sessions.append(session_id, message)
        return message
