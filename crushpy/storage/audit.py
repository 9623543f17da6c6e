"""The audit: what was decided and changed, conversation by conversation, only ever added to.

Lives on the storage thread. A conversation's records outlive it.
"""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Row, bindparam, insert, select, update

from crushpy.sanitize import encodable
from crushpy.storage.audit_records import AuditChain, AuditEntry, AuditRecord, first_hash, linked
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.tables import audit_ends, audits

_root: BindParameter[Any] = bindparam("root")
_A, _E = audits.c, audit_ends.c
_END = select(_E.number, _E.hash).where(_E.root_id == _root)
_INSERT = insert(audits)
_BEGIN_CHAIN = insert(audit_ends)
_MOVE_END = (
    update(audit_ends)
    .where(_E.root_id == _root)
    .values(number=bindparam("last"), hash=bindparam("last_hash"))
)
_OF = select(audits).where(_A.root_id == _root).order_by(_A.number)
_ROOTS_FROM = select(_E.root_id).where(_E.root_id >= bindparam("start")).order_by(_E.root_id)
_STRAYS = select(_A.root_id).distinct().where(_A.root_id.not_in(select(_E.root_id)))


class Audit:
    def __init__(self, connection: Connection) -> None:
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
        self._execute(_INSERT, rows)
        if end:
            self._execute(_MOVE_END, {"root": root_id, "last": number, "last_hash": previous})
        else:
            self._execute(_BEGIN_CHAIN, {"root_id": root_id, "number": number, "hash": previous})

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


def _record(row: Row[Any]) -> AuditRecord:
    return AuditRecord(**{field: getattr(row, field) for field in AuditRecord.__struct_fields__})
