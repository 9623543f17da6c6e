"""`store.audit`: decisions and changes, conversation by conversation. Append-only; kept after a deletion."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.security.sanitize import encodable
from crushpy.storage.audit_records import AuditChain, AuditEntry, first_hash, linked
from crushpy.storage.codec import json_text
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import CallDecided
from crushpy.storage.storage_thread import Subject, stored


def append_audit(db: Database, root_id: str, entries: Sequence[AuditEntry]) -> None:
    """Adds records inside the running transaction, which keeps other processes out meanwhile."""
    if not entries:
        return
    end = db.execute(sql.FIND_AUDIT_END, root=root_id).first()
    number, previous = (end.number, end.hash) if end else (0, first_hash(root_id))
    rows: list[dict[str, Any]] = []
    for entry in entries:
        number += 1
        clean = AuditEntry(entry.kind, entry.body, entry.session_id, encodable(entry.call_id))
        record = linked(root_id, number, previous, clean, json_text(entry.body), time.time())
        previous = record.hash
        rows.append(msgspec.structs.asdict(record))
    db.execute_many(sql.INSERT_AUDIT, rows)
    db.execute(sql.SAVE_AUDIT_END, root_id=root_id, number=number, hash=previous)


class AuditStore(Subject):
    async def append(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the chain of a conversation: all or none."""
        await self._thread.calls.write(CallDecided(root_id, entries))

    @stored
    def load_chain(self, root_id: str) -> AuditChain:
        """All records of a conversation, deleted or not."""
        end = self._db.execute(sql.FIND_AUDIT_END, root=root_id).first()
        records = tuple(self._db.execute(sql.LIST_AUDIT, root=root_id))
        return AuditChain(root_id, records, (end.number, end.hash) if end else None)

    @stored
    def list_conversations(self, prefix: str = "") -> list[str]:
        """The conversations with records whose ids begin so, including deleted ones."""
        known = self._db.execute(sql.LIST_AUDITED, start=prefix).scalars()
        without_end = self._db.execute(sql.LIST_AUDITED_WITHOUT_END).scalars()
        return sorted(root_id for root_id in (*known, *without_end) if root_id.startswith(prefix))
