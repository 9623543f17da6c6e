"""What calls did to files, conversation by conversation. Lives on the storage thread."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable
from crushpy.storage.audit import Audit
from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.rows import Row
from crushpy.undo.states import FileState, RecordedChange, path_from_stored, stored_path

_STATES = 500
"""Changes whose states are read at a time."""
_IN_BATCH = "SELECT * FROM file_change WHERE batch = :batch"
_OF_OTHERS = """
    SELECT * FROM file_change WHERE number > :since AND machine = :machine AND root_id != :root
    ORDER BY number
"""
_NUMBER_OF = "SELECT number FROM message WHERE id = :message"
_LAST_MESSAGE = "SELECT max(number) FROM message"
_DROP = "DELETE FROM file_change WHERE number = :number"
_OF = "SELECT * FROM file_change WHERE root_id = :root ORDER BY number"
_AFTER = "SELECT number, before, after FROM file_change WHERE number > :after ORDER BY number LIMIT :many"
_LAST = "SELECT max(number) FROM file_change"
_NUMBERS_OF = "SELECT id, number FROM message WHERE id IN ({})"


class FileChanges:
    """Every change that was made is in the audit of its conversation too, from the same moment on."""

    def __init__(self, connection: Connection, audit: Audit) -> None:
        self._connection = connection
        self._audit = audit
        self._execute = connection.execute
        self._numbers_of = _NUMBERS_OF.format(connection.dialect.items_of.format(":ids"))

    def add(self, changes: Sequence[RecordedChange], message_id: str, since: int | None) -> None:
        if not changes:
            return
        first = changes[0]
        with self._connection.transaction(durable=True, session=first.session_id):
            if first.batch and self._execute(_IN_BATCH, {"batch": first.batch}).first():
                return
            self._connection.numbering("file_change")
            others = {} if since is None else self._of_others(first, since)
            number = self._message_number(message_id)
            mine = [own for one in changes if (own := _own_part(one, others.get(one.path)))]
            if mine:
                rows = [_to_row(one) | {"message_number": number} for one in mine]
                self._connection.insert("file_change", *rows)
                self._audit.append(first.root_id, [_to_entry(one, one.after) for one in mine if one.after])

    def _of_others(self, mine: RecordedChange, since: int) -> dict[str, tuple[FileState, FileState | None]]:
        """What became of each path by other conversations on this machine meanwhile."""
        values = {"since": since, "machine": mine.machine, "root": mine.root_id}
        found: dict[str, tuple[FileState, FileState | None]] = {}
        for change in map(_from_row, self._execute(_OF_OTHERS, values)):
            before = found[change.path][0] if change.path in found else change.before
            found[change.path] = before, change.after
        return found

    def _message_number(self, message_id: str) -> int:
        number = _NUMBER_OF if message_id else _LAST_MESSAGE
        return self._execute(number, {"message": message_id}).scalar() or 0

    def finish(self, batch: str, after: Mapping[str, FileState]) -> None:
        first = self._execute(_IN_BATCH, {"batch": batch}).first()
        if first is None:
            return
        with self._connection.transaction(durable=True, session=first.session_id):
            rows = self._execute(_IN_BATCH, {"batch": batch}).all()
            made: list[AuditEntry] = []
            for row in rows:
                state = after.get(path_from_stored(row.path))
                if state is None:
                    continue
                this = {"number": row.number}
                if state.same(msgspec.json.decode(row.before, type=FileState)):
                    self._execute(_DROP, this)
                else:
                    self._connection.update("file_change", "number = :number", this, {"after": _json(state)})
                    made.append(_to_entry(_from_row(row), state))
            if made:
                self._audit.append(rows[0].root_id, made)

    def of(self, root_id: str) -> list[RecordedChange]:
        rows = self._execute(_OF, {"root": root_id})
        return [_from_row(row) for row in rows]

    def states(self, after: int) -> tuple[int, list[FileState]]:
        rows = self._execute(_AFTER, {"after": after, "many": _STATES}).all()
        texts = (text for row in rows for text in (row.before, row.after) if text)
        return rows[-1].number if rows else 0, [msgspec.json.decode(one, type=FileState) for one in texts]

    def last(self) -> int:
        return self._execute(_LAST).scalar() or 0

    def message_numbers(self, message_ids: Sequence[str]) -> dict[str, int]:
        rows = self._execute(self._numbers_of, {"ids": to_column(message_ids)})
        return {row.id: row.number for row in rows}


def _own_part(
    change: RecordedChange, others: tuple[FileState, FileState | None] | None
) -> RecordedChange | None:
    """What of a change was not somebody else's, who recorded theirs while it was made; None: nothing."""
    before, after = others or (None, None)
    if before is None or after is None or change.after is None:
        return change
    if not after.same(change.after):  # ours came last
        return msgspec.structs.replace(change, before=after)
    return None if before.same(change.before) else msgspec.structs.replace(change, after=before)


def _json(state: FileState | None) -> str | None:
    return None if state is None else msgspec.json.encode(state).decode()


def _to_entry(change: RecordedChange, after: FileState) -> AuditEntry:
    """A change as the audit has it: what the path held before and after, as hashes."""
    body = {
        "path": redact(encodable(change.path)),
        "before": _held(change.before),
        "after": _held(after),
        "tool": change.source,
    }
    return AuditEntry("change", body, change.session_id, change.call_id)


def _held(state: FileState) -> str:
    """A file's hash, what else was there, or nothing."""
    return {"file": state.hash, "missing": ""}.get(state.kind, state.kind)


def _to_row(change: RecordedChange) -> dict[str, Any]:
    return {
        "root_id": change.root_id,
        "session_id": change.session_id,
        "call_id": encodable(change.call_id),
        "source": change.source,
        "path": stored_path(change.path),
        "before": _json(change.before),
        "after": _json(change.after),
        "batch": change.batch,
        "reverses": change.reverses,
        "machine": change.machine,
        "host": change.host,
        "created_at": change.created_at,
    }


def _from_row(row: Row) -> RecordedChange:
    return RecordedChange(
        path_from_stored(row.path),
        msgspec.json.decode(row.before, type=FileState),
        msgspec.json.decode(row.after, type=FileState) if row.after else None,
        row.number,
        row.root_id,
        row.session_id,
        row.message_number,
        row.call_id,
        row.source,
        row.batch,
        row.reverses,
        row.machine,
        row.host,
        row.created_at,
    )
