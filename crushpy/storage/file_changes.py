"""`store.file_changes`: the changes that calls made to files, conversation by conversation."""

from collections.abc import Mapping, Sequence

import msgspec

from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable
from crushpy.storage.audit_store import append_audit
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import FileChangeRow
from crushpy.storage.records import AuditEntry
from crushpy.storage.session_rows import from_row, json_text, to_row
from crushpy.storage.storage_thread import Subject, stored
from crushpy.undo.states import FileState, RecordedChange, path_from_stored, stored_path

_PAGE_ROWS = 500
"""Changes whose states are read at a time."""


class FileChangeStore(Subject):
    """Every change is in the audit of its conversation as well, from the same moment on."""

    @stored
    def add(self, changes: Sequence[RecordedChange], message_id: str = "", since: int | None = None) -> None:
        """Records changes of files, as part of a message (the latest if none is named).

        Nothing if that batch is recorded already. With `since`, a change's number: without those that
        another conversation recorded after it with the same result.
        """
        if not changes:
            return
        db, first = self._db, changes[0]
        with db.transaction(durable=True, session=first.session_id):
            if first.batch and db.execute(sql.LIST_BATCH, batch=first.batch).first():
                return
            db.lock_sequence("file_change")
            others = {} if since is None else self._changes_of_others(first, since)
            find = sql.FIND_MESSAGE_NUMBER if message_id else sql.FIND_LAST_NUMBER
            number = db.execute(find, message=message_id).scalar() or 0
            mine = [own for change in changes if (own := _own_part(change, others.get(change.path)))]
            rows = [
                to_row(change) | {"message_number": number, "path": stored_path(change.path)}
                for change in mine
            ]
            db.execute_many(sql.INSERT_FILE_CHANGE, rows)
            append_audit(
                db, first.root_id, [_to_entry(change, change.after) for change in mine if change.after]
            )

    def _changes_of_others(
        self, mine: RecordedChange, since: int
    ) -> dict[str, tuple[FileState, FileState | None]]:
        """The first and last state of each path that other conversations changed here meanwhile."""
        rows = self._db.execute(
            sql.LIST_CHANGES_OF_OTHERS, since=since, machine=mine.machine, root=mine.root_id
        )
        found: dict[str, tuple[FileState, FileState | None]] = {}
        for change in map(_from_row, rows):
            before = found[change.path][0] if change.path in found else change.before
            found[change.path] = before, change.after
        return found

    @stored
    def finish(self, batch: str, after: Mapping[str, FileState]) -> None:
        """Records the final state of the files of a batch; unchanged ones are removed from it."""
        db = self._db
        first = db.execute(sql.LIST_BATCH, batch=batch).first()
        if first is None:
            return
        with db.transaction(durable=True, session=first.session_id):
            made: list[AuditEntry] = []
            for row in db.execute(sql.LIST_BATCH, batch=batch).all():
                state = after.get(path_from_stored(row.path))
                if state is None:
                    continue
                if state.same(msgspec.json.decode(row.before, type=FileState)):
                    db.execute(sql.DELETE_FILE_CHANGE, change=row.number)
                else:
                    db.execute(sql.SET_STATE_AFTER, change=row.number, state=json_text(state))
                    made.append(_to_entry(_from_row(row), state))
            append_audit(db, first.root_id, made)

    @stored
    def load(self, root_id: str) -> list[RecordedChange]:
        """All changes of a conversation to files, oldest first."""
        return [_from_row(row) for row in self._db.execute(sql.LIST_FILE_CHANGES, root=root_id)]

    @stored
    def load_states(self, after: int) -> tuple[int, list[FileState]]:
        """The states of files in some changes of all conversations, after the one with this number; and the
        number to continue with, 0 if none is left."""
        rows = self._db.execute(sql.PAGE_FILE_STATES, after=after, many=_PAGE_ROWS).all()
        texts = (text for row in rows for text in (row.before, row.after) if text)
        return rows[-1].number if rows else 0, [msgspec.json.decode(text, type=FileState) for text in texts]

    @stored
    def get_last_number(self) -> int:
        """The number of the latest change of any conversation; 0 if there is none."""
        return self._db.execute(sql.FIND_LAST_CHANGE).scalar() or 0


def _own_part(
    change: RecordedChange, others: tuple[FileState, FileState | None] | None
) -> RecordedChange | None:
    """The part of a change that no other conversation recorded while it was made; None if nothing is left."""
    before, after = others or (None, None)
    if before is None or after is None or change.after is None:
        return change
    if not after.same(change.after):  # ours came last
        return msgspec.structs.replace(change, before=after)
    return None if before.same(change.before) else msgspec.structs.replace(change, after=before)


def _to_entry(change: RecordedChange, after: FileState) -> AuditEntry:
    """A change as the audit records it: hashes of the file before and after."""
    body = {
        "path": redact(encodable(change.path)),
        "before": _content(change.before),
        "after": _content(after),
        "tool": change.source,
    }
    return AuditEntry("change", body, change.session_id, change.call_id)


def _content(state: FileState) -> str:
    """A file's hash, the kind of anything else, or empty."""
    return {"file": state.hash, "missing": ""}.get(state.kind, state.kind)


def _from_row(row: FileChangeRow) -> RecordedChange:
    return from_row(RecordedChange, row, path=path_from_stored(row.path))
