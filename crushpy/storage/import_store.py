"""`store.imports`: conversations of other agents, streamed in, one transaction each.

Messages keep their own times; nothing is counted as written just now.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from crushpy.core.messages import Message, Usage
from crushpy.storage import session_rows
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import ImportReading, ImportRecord, SessionInfo
from crushpy.storage.session_store import mark_deleted
from crushpy.storage.storage_thread import Subject, stored

_BATCH_CHARS = 2_000_000
"""Characters of messages that are held before they are written."""


class ImportStore(Subject):
    @stored
    def find_record(self, source: str, foreign_id: str) -> ImportRecord | None:
        """How far that session of another agent was imported; None if it was not."""
        return self._db.execute(sql.FIND_IMPORT, source=source, foreign=foreign_id).first()

    @stored
    def find_last_message(self, root_id: str) -> str:
        """The last imported message of a conversation; empty if it was not imported."""
        return self._db.execute(sql.FIND_LAST_IMPORTED, root=root_id).scalar() or ""

    @stored
    def was_continued(self, record: ImportRecord) -> bool:
        """Whether an imported conversation was continued here."""
        if session_rows.find_continuation(self._db, record.tip_id) is not None:
            return True
        last = self._db.execute(sql.FIND_LAST_MESSAGE_ID, session=record.tip_id, many=1).scalar()
        return last != record.last_message

    @stored
    def write(self, first: SessionInfo, replaced: str, begin: Callable[[], ImportReading]) -> None:
        """Stores a conversation that begins with the session `first` while it is read, and deletes the one
        named by `replaced`, if any, in one transaction. A retry after a lost connection reads again."""
        db, reading = self._db, begin()
        with db.transaction(durable=True, session=replaced or first.root_id):
            if replaced:
                mark_deleted(db, replaced)
            session_rows.insert_session(db, first)
            growing = _GrowingSession(db, first.id)
            for step in reading.steps():
                if isinstance(step, Message):
                    growing.add(step)
                    continue
                growing.close()
                boundary = step.boundary
                db.execute(
                    sql.END_SESSION,
                    session=boundary.parent_id,
                    reason=boundary.trigger,
                    moment=boundary.created_at,
                )
                session_rows.insert_session(db, step.child)
                db.execute(sql.INSERT_BOUNDARY, **session_rows.boundary_to_row(boundary))
                growing = _GrowingSession(db, step.child.id)
                growing.add(step.seed)
            growing.close()
            title, record = reading.end()
            db.execute(sql.RENAME_SESSIONS, root=first.root_id, new_title=title)
            db.execute(sql.SAVE_IMPORT, **msgspec.structs.asdict(record), open_calls="[]")
            session_rows.refresh_conversation(db, record.root_id)


class _GrowingSession:
    """A session that receives messages in batches, and its totals at the end."""

    def __init__(self, db: Database, session_id: str) -> None:
        self._db = db
        self._id = session_id
        self._seq = 0
        self._rows: list[dict[str, Any]] = []
        self._size = 0
        self._usage = Usage()
        self._latest = 0.0
        self._model: str | None = None

    def add(self, message: Message) -> None:
        self._seq += 1
        row: dict[str, Any] = session_rows.message_to_row(self._id, message) | {"seq": self._seq}
        self._rows.append(row)
        self._size += len(row["parts"])
        self._usage += message.usage or Usage()
        self._latest = max(self._latest, message.created_at)
        self._model = message.model or self._model
        if self._size > _BATCH_CHARS:
            self._write()

    def close(self) -> None:
        self._write()
        self._db.execute(sql.QUEUE_SESSION, session=self._id)
        self._db.execute(
            sql.COUNT_IMPORTED_MESSAGES,
            session=self._id,
            many=self._seq,
            latest=self._latest,
            new_model=self._model,
            **session_rows.usage_values(self._usage),
        )

    def _write(self) -> None:
        self._db.execute_many(sql.INSERT_NUMBERED_MESSAGE, self._rows)
        self._rows, self._size = [], 0
