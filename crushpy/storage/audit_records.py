"""What the audit holds: one record for each decision and each change, chained by hashes. Light, and pure."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from crushpy.core.messages import Data
from crushpy.storage.generated.rows import AuditRow

AuditKind = Literal["decision", "change", "deleted"]


class AuditEntry(Data, frozen=True):
    """Something to record. What it says must be redacted already."""

    kind: AuditKind
    body: dict[str, Any]
    """Plain JSON."""
    session_id: str = ""
    call_id: str = ""


class AuditChain(Data, frozen=True):
    """A conversation's records, and where its chain should end."""

    root_id: str
    records: tuple[AuditRow, ...]
    end: tuple[int, str] | None
    """Number and hash of the last record, kept apart from it; None if that is missing."""


class AuditFault(Data, frozen=True):
    """The first place at which a chain does not hold."""

    number: int
    reason: str


def first_hash(root_id: str) -> str:
    return hashlib.sha256(f"crushpy audit {root_id}".encode()).hexdigest()


def record_hash(record: AuditRow) -> str:
    """Over everything that a record says, and the hash of the one before it."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(record)[:-1])).hexdigest()


def linked(root_id: str, number: int, previous: str, entry: AuditEntry, body: str, at: float) -> AuditRow:
    """The record of `entry` at its place in the chain; `body` is its body as text."""
    record = AuditRow(root_id, number, entry.kind, at, entry.session_id, entry.call_id, body, previous, "")
    return msgspec.structs.replace(record, hash=record_hash(record))


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
    return _fault_at_end(chain.records, chain.end)


def _fault_at_end(records: Sequence[AuditRow], end: tuple[int, str] | None) -> AuditFault | None:
    last = (records[-1].number, records[-1].hash) if records else (0, "")
    if end is None:
        return AuditFault(last[0], "the note of where the chain ends is missing") if records else None
    if end[0] > last[0]:
        return AuditFault(last[0] + 1, f"it is missing; there were {end[0]}")
    return None if end == last else AuditFault(last[0], "it is not the one the chain ended with")
