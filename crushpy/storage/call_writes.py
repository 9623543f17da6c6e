"""What is stored of tool calls: many in one transaction, since a reply may ask for thousands.

Lives on the storage thread.
"""

from collections.abc import Sequence

from crushpy.storage.audit import Audit
from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.call_records import CallAnswered, CallBegun, CallDecided, CallStart, CallWrite
from crushpy.storage.connection import Connection
from crushpy.storage.session_table import SessionTable


class CallWrites:
    def __init__(self, connection: Connection, sessions: SessionTable, audit: Audit) -> None:
        self._connection = connection
        self._sessions = sessions
        self._audit = audit

    def write(self, where: str, writes: Sequence[CallWrite]) -> None:
        """Writes to one session, or conversation: all or nothing. What begins survives a power cut."""
        begun = [(write.message_id, write.call) for write in writes if isinstance(write, CallBegun)]
        answers = [write for write in writes if isinstance(write, CallAnswered)]
        with self._connection.transaction(durable=bool(begun), session=where):
            for root_id, entries in _decided(writes).items():
                self._audit.append(root_id, entries)
            if begun:
                self._sessions.begin_calls(where, begun)
            if answers:
                starts = {one.message.id: one.start for one in answers if one.start is not None}
                facts = {one.message.id: one.facts for one in answers if one.facts is not None}
                self._sessions.append(where, *(one.message for one in answers), starts=starts, facts=facts)


def _decided(writes: Sequence[CallWrite]) -> dict[str, list[AuditEntry]]:
    """What there is to record, by conversation."""
    found: dict[str, list[AuditEntry]] = {}
    for write in writes:
        match write:
            case CallDecided() as decided:
                found.setdefault(decided.root_id, []).extend(decided.entries)
            case CallAnswered(start=CallStart(decided=decided)):
                found.setdefault(decided.root_id, []).extend(decided.entries)
            case _:
                pass
    return found
