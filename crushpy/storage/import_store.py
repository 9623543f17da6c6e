"""`store.imports`: conversations of other agents, streamed in, one transaction each.

Messages keep their own times; nothing is counted as written just now.
"""

from collections.abc import Callable

import msgspec

from crushpy.core.messages import Message
from crushpy.storage import session_rows
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import ImportReading, ImportRecord, SessionInfo
from crushpy.storage.session_store import mark_deleted
from crushpy.storage.storage_thread import Subject, stored

_BATCH_MESSAGES = 200


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
            batch = _Batch(db, first)
            for step in reading.steps():
                if isinstance(step, Message):
                    batch.add(step)
                    continue
                batch.write()
                boundary = step.boundary
                db.execute(
                    sql.END_SESSION,
                    session=boundary.parent_id,
                    reason=boundary.trigger,
                    moment=boundary.created_at,
                )
                session_rows.insert_session(db, step.child)
                db.execute(sql.INSERT_BOUNDARY, **session_rows.boundary_to_row(boundary))
                batch = _Batch(db, step.child)
                batch.add(step.seed)
            batch.write()
            title, record = reading.end()
            db.execute(sql.RENAME_SESSIONS, root=first.root_id, new_title=title)
            db.execute(sql.SAVE_IMPORT, **msgspec.structs.asdict(record), open_calls="[]")
            session_rows.refresh_conversation(db, record.root_id)


class _Batch:
    """Messages of a session that are written together."""

    def __init__(self, db: Database, info: SessionInfo) -> None:
        self._db = db
        self._id = info.id
        self._latest = info.updated_at
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self._latest = max(self._latest, message.created_at)
        if len(self._messages) == _BATCH_MESSAGES:
            self.write()

    def write(self) -> None:
        messages, self._messages = self._messages, []
        session_rows.append_messages(self._db, self._id, *messages, imported_at=self._latest)
