"""`store.audit`: decisions and changes, conversation by conversation. Append-only; kept after a deletion."""

import time
from collections.abc import Sequence

from crushpy.security.sanitize import encodable
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import AuditRow
from crushpy.storage.records import AuditEntry
from crushpy.storage.session_rows import json_text
from crushpy.storage.storage_thread import Subject, stored


def append_audit(db: Database, root_id: str, entries: Sequence[AuditEntry]) -> None:
    """Adds records inside the running transaction, which keeps other processes out meanwhile."""
    rows = [
        {
            "root_id": root_id,
            "of_root": root_id,
            "kind": entry.kind,
            "at": time.time(),
            "session_id": entry.session_id,
            "call_id": encodable(entry.call_id),
            "body": json_text(entry.body),
        }
        for entry in entries
    ]
    db.execute_many(sql.INSERT_AUDIT, rows)


class AuditStore(Subject):
    async def append(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the audit of a conversation: all or none."""
        await self._thread.write_together(root_id, lambda: append_audit(self._db, root_id, entries))

    @stored
    def load(self, root_id: str) -> list[AuditRow]:
        """All records of a conversation, deleted or not."""
        return self._db.execute(sql.LIST_AUDIT, root=root_id).all()

    @stored
    def list_conversations(self, prefix: str) -> list[str]:
        """The conversations with records whose ids begin so, including deleted ones."""
        found = self._db.execute(sql.LIST_AUDITED, start=prefix).scalars()
        return [root_id for root_id in found if root_id.startswith(prefix)]
