"""What is stored of tool calls: many in one transaction, since a reply may ask for thousands.

Lives on the storage thread.
"""

from collections.abc import Sequence

from crushpy.storage.audit import Audit
from crushpy.storage.call_records import CallAnswered, CallBegun, CallDecided, CallWrite
from crushpy.storage.connection import Connection
from crushpy.storage.session_table import SessionTable


class CallWrites:
    def __init__(self, connection: Connection, sessions: SessionTable, audit: Audit) -> None:
        self._connection = connection
        self._sessions = sessions
        self._audit = audit

    def write(self, where: str, writes: Sequence[CallWrite]) -> None:
        """Writes to one session, or conversation: all or nothing. What begins survives a power cut."""
        entries = [entry for write in writes if isinstance(write, CallDecided) for entry in write.entries]
        begun = [(write.message_id, write.call) for write in writes if isinstance(write, CallBegun)]
        answers = [write.message for write in writes if isinstance(write, CallAnswered)]
        with self._connection.transaction(durable=bool(begun), session=where):
            self._audit.append(where, entries)
            if begun:
                self._sessions.begin_calls(where, begun)
            if answers:
                self._sessions.append(where, *answers)
