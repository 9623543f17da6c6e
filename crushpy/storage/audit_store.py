"""`store.audit`: decisions and changes, conversation by conversation, chained by hashes.

Append-only; kept after a deletion.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.core.messages import Data
from crushpy.security.sanitize import encodable
from crushpy.storage.database import Database, handwritten
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import AuditRow
from crushpy.storage.records import AuditEntry
from crushpy.storage.session_rows import json_text
from crushpy.storage.storage_thread import Subject, stored

_IS_STORED = handwritten("SELECT 1 FROM session WHERE root_id = :root AND kind <> 'deleted'")
_CALLS = (
    "FROM tool_run JOIN session ON session.id = tool_run.session_id "
    "WHERE session.kind <> 'deleted' "
    "AND tool_run.name NOT IN ('new_session', 'branch', 'return_to_parent')"  # need no decision
)
_HAS_CALLS = handwritten(f"SELECT 1 {_CALLS} AND session.root_id = :root LIMIT 1")
_UNRECORDED = handwritten(
    f"SELECT DISTINCT session.root_id {_CALLS} AND NOT EXISTS "  # noqa: S608  # our own names
    "(SELECT 1 FROM audit WHERE audit.root_id = session.root_id)"
)


class AuditChain(Data, frozen=True):
    """A conversation's records, and where its chain should end."""

    root_id: str
    records: tuple[AuditRow, ...]
    end: tuple[int, str] | None
    """Number and hash of the last record, kept apart from it; None if that is missing."""
    is_stored: bool = True
    """Whether the conversation itself is in the database."""
    has_calls: bool = False
    """Whether tools were called in it, each after a decision that was recorded."""


class AuditFault(Data, frozen=True):
    """The first place at which a chain does not hold."""

    number: int
    reason: str


def first_hash(root_id: str) -> str:
    return hashlib.sha256(f"crushpy audit {root_id}".encode()).hexdigest()


def record_hash(record: AuditRow) -> str:
    """Over everything that a record says, and the hash of the one before it."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(record)[:-1])).hexdigest()


def find_fault(chain: AuditChain) -> AuditFault | None:
    """The first record that is missing, was changed, or does not belong here; None if the chain is intact."""
    previous = first_hash(chain.root_id)
    for place, record in enumerate(chain.records, 1):
        if record.number != place:
            return AuditFault(place, "it is missing")
        if record_hash(record) != record.hash:
            return AuditFault(place, "what it says was changed")
        if record.previous != previous:
            return AuditFault(place, "it does not follow the record before it")
        previous = record.hash
    return _fault_at_end(chain)


def _fault_at_end(chain: AuditChain) -> AuditFault | None:
    records, end = chain.records, chain.end
    last = (records[-1].number, records[-1].hash) if records else (0, "")
    if not records and end is None and chain.has_calls:
        return AuditFault(1, "all records are missing, although tools were called")
    if records and not chain.is_stored and all(record.kind != "deleted" for record in records):
        return AuditFault(last[0] + 1, "the conversation is gone, and no record says that it was deleted")
    if end is None:
        return AuditFault(last[0], "the note of where the chain ends is missing") if records else None
    if end[0] > last[0]:
        return AuditFault(last[0] + 1, f"it is missing; there were {end[0]}")
    return None if end == last else AuditFault(last[0], "it is not the one the chain ended with")


def append_audit(db: Database, root_id: str, entries: Sequence[AuditEntry]) -> None:
    """Adds records inside the running transaction, which keeps other processes out meanwhile."""
    if not entries:
        return
    end = db.execute(sql.FIND_AUDIT_END, root=root_id).first()
    number, previous = (end.number, end.hash) if end else (0, first_hash(root_id))
    rows: list[dict[str, Any]] = []
    for entry in entries:
        number += 1
        about = (entry.kind, time.time(), entry.session_id, encodable(entry.call_id), json_text(entry.body))
        record = AuditRow(root_id, number, *about, previous, hash="")
        previous = record_hash(record)
        rows.append(msgspec.structs.asdict(record) | {"hash": previous})
    db.execute_many(sql.INSERT_AUDIT, rows)
    db.execute(sql.SAVE_AUDIT_END, root_id=root_id, number=number, hash=previous)


class AuditStore(Subject):
    async def append(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the chain of a conversation: all or none."""
        await self._thread.write_together(root_id, lambda: append_audit(self._db, root_id, entries))

    @stored
    def load_chain(self, root_id: str) -> AuditChain:
        """All records of a conversation, deleted or not."""
        end = self._db.execute(sql.FIND_AUDIT_END, root=root_id).first()
        records = tuple(self._db.execute(sql.LIST_AUDIT, root=root_id))
        ending = (end.number, end.hash) if end else None
        is_stored = self._db.execute(_IS_STORED, root=root_id).scalar() is not None
        has_calls = self._db.execute(_HAS_CALLS, root=root_id).scalar() is not None
        return AuditChain(root_id, records, ending, is_stored, has_calls)

    @stored
    def list_conversations(self, prefix: str = "") -> list[str]:
        """The conversations with records whose ids begin so, including deleted ones."""
        known = self._db.execute(sql.LIST_AUDITED, start=prefix).scalars()
        without_end = self._db.execute(sql.LIST_AUDITED_WITHOUT_END).scalars()
        unrecorded = self._db.execute(_UNRECORDED).scalars()
        found = {*known, *without_end, *unrecorded}
        return sorted(root_id for root_id in found if root_id.startswith(prefix))
