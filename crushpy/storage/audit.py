"""The audit: what was decided and changed, conversation by conversation, only ever added to.

Lives on the storage thread. A conversation's records outlive it.
"""

import time
from collections.abc import Sequence
from typing import Any

from crushpy.security.sanitize import encodable
from crushpy.storage.audit_records import AuditChain, AuditEntry, AuditRecord, first_hash, linked
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.rows import Row

_END = "SELECT number, hash FROM audit_end WHERE root_id = :root"
_MOVE_END = "UPDATE audit_end SET number = :last, hash = :last_hash WHERE root_id = :root"
_OF = "SELECT * FROM audit WHERE root_id = :root ORDER BY number"
_ROOTS_FROM = "SELECT root_id FROM audit_end WHERE root_id >= :start ORDER BY root_id"
_STRAYS = "SELECT DISTINCT root_id FROM audit WHERE root_id NOT IN (SELECT root_id FROM audit_end)"


class Audit:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def append(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records inside the running transaction, which keeps other processes out meanwhile."""
        if not entries:
            return
        end = self._execute(_END, {"root": root_id}).first()
        number, previous = (end.number, end.hash) if end else (0, first_hash(root_id))
        rows: list[dict[str, Any]] = []
        for entry in entries:
            number += 1
            record = linked(root_id, number, previous, _encodable(entry), to_column(entry.body), time.time())
            previous = record.hash
            rows.append({field: getattr(record, field) for field in record.__struct_fields__})
        self._connection.insert("audit", *rows)
        if end:
            self._execute(_MOVE_END, {"root": root_id, "last": number, "last_hash": previous})
        else:
            begun = {"root_id": root_id, "number": number, "hash": previous}
            self._connection.insert("audit_end", begun)

    def chain(self, root_id: str) -> AuditChain:
        end = self._execute(_END, {"root": root_id}).first()
        records = tuple(map(_record, self._execute(_OF, {"root": root_id})))
        return AuditChain(root_id, records, (end.number, end.hash) if end else None)

    def conversations(self, prefix: str = "") -> list[str]:
        """The conversations there are records of whose ids begin so, those that were deleted too."""
        known = [row.root_id for row in self._execute(_ROOTS_FROM, {"start": prefix})]
        strays = [row.root_id for row in self._execute(_STRAYS)]
        return sorted(root_id for root_id in (*known, *strays) if root_id.startswith(prefix))


def _encodable(entry: AuditEntry) -> AuditEntry:
    return AuditEntry(entry.kind, entry.body, entry.session_id, encodable(entry.call_id))


def _record(row: Row) -> AuditRecord:
    return AuditRecord(**{field: getattr(row, field) for field in AuditRecord.__struct_fields__})
