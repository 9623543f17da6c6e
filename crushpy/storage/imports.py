"""Conversations of other agents: streamed in, one transaction each, and how far each was read.

Lives on the storage thread. Messages keep their own times; nothing is counted as said just now.
"""

from typing import Any

import msgspec
from sqlalchemy import case, select, update

from crushpy.core.messages import Message, Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.built_statements import run_built
from crushpy.storage.cleaning import Cleaning
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import ConversationTable
from crushpy.storage.records import ImportReading, ImportRecord, SessionInfo
from crushpy.storage.row_mapping import boundary_to_row, message_to_row
from crushpy.storage.search_index import SearchIndex
from crushpy.storage.system_prompts import insert_session
from crushpy.storage.tables import imports, messages, sessions

_M = messages.c
_S = sessions.c
_BATCH_CHARS = 2_000_000
"""Characters of messages that are held before they are written."""
_calls = msgspec.json.Decoder(tuple[str, ...])


class Imports:
    def __init__(
        self,
        connection: Connection,
        session_boundaries: Boundaries,
        conversations: ConversationTable,
        index: SearchIndex,
        cleaning: Cleaning,
    ) -> None:
        self._connection = connection
        self._cleaning = cleaning
        self._conversations = conversations
        self._index = index
        self._boundaries = session_boundaries

    def find(self, source: str, foreign_id: str) -> ImportRecord | None:
        statement = (
            select(imports)
            .where(imports.c.source == source, imports.c.foreign_id == encodable(foreign_id))
            .order_by(imports.c.imported_at.desc())
        )
        row = run_built(self._connection, statement).first()
        if row is None:
            return None
        given: dict[str, Any] = {field: getattr(row, field) for field in ImportRecord.__struct_fields__}
        given["open_calls"] = _calls.decode(row.open_calls)
        return ImportRecord(**given)

    def was_continued(self, record: ImportRecord) -> bool:
        if self._boundaries.continued_in(record.tip_id) is not None:
            return True
        last = select(_M.id).where(_M.session_id == record.tip_id).order_by(_M.seq.desc())
        return run_built(self._connection, last.limit(1)).scalar() != record.last_message

    def write(self, first: SessionInfo, replaced: str, reading: ImportReading) -> None:
        with self._connection.transaction(durable=True, session=replaced or first.root_id):
            if replaced:
                self._cleaning.mark_in_transaction(replaced)
            insert_session(self._connection, first)
            growing = _GrowingSession(self._connection, self._index, first.id)
            for step in reading.steps():
                if isinstance(step, Message):
                    growing.add(step)
                    continue
                growing.close()
                ended = {"end_reason": step.boundary.trigger, "ended_at": step.boundary.created_at}
                run_built(
                    self._connection, update(sessions).where(_S.id == step.boundary.parent_id).values(ended)
                )
                insert_session(self._connection, step.child)
                self._connection.insert("boundary", boundary_to_row(step.boundary))
                growing = _GrowingSession(self._connection, self._index, step.child.id)
                growing.add(step.seed)
            growing.close()
            title, record = reading.end()
            named = {"title": encodable(title)}
            run_built(self._connection, update(sessions).where(_S.root_id == first.root_id).values(named))
            self._keep(record)
            self._conversations.refresh(record.root_id)

    def _keep(self, record: ImportRecord) -> None:
        row = {field: encodable(getattr(record, field)) for field in record.__struct_fields__}
        row["open_calls"] = to_column(record.open_calls)
        self._connection.replace(imports.name, row, "root_id")


class _GrowingSession:
    """A session that gets messages in batches, and its totals at the end."""

    def __init__(self, connection: Connection, index: SearchIndex, session_id: str) -> None:
        self._connection = connection
        self._index = index
        self._id = session_id
        self._seq = 0
        self._rows: list[dict[str, Any]] = []
        self._size = 0
        self._usage = Usage()
        self._count = 0
        self._latest = 0.0
        self._model = ""

    def add(self, message: Message) -> None:
        self._seq += 1
        row = message_to_row(self._id, message)
        row["seq"] = self._seq
        self._rows.append(row)
        self._size += len(row["parts"])
        self._usage += message.usage or Usage()
        self._count += 1
        self._latest = max(self._latest, message.created_at)
        self._model = message.model or self._model
        if self._size > _BATCH_CHARS:
            self._write()

    def close(self) -> None:
        self._write()
        self._index.queue_session(self._id, 0)
        used = self._usage
        changes: dict[str, Any] = {
            "message_count": _S.message_count + self._count,
            "input_tokens": _S.input_tokens + used.input_tokens,
            "output_tokens": _S.output_tokens + used.output_tokens,
            "cache_read_tokens": _S.cache_read_tokens + used.cache_read_tokens,
            "cache_write_tokens": _S.cache_write_tokens + used.cache_write_tokens,
            "cost": _S.cost + used.cost,
            "updated_at": case((_S.updated_at > self._latest, _S.updated_at), else_=self._latest),
        }
        if self._model:
            changes["model"] = encodable(self._model)
        run_built(self._connection, update(sessions).where(_S.id == self._id).values(changes))

    def _write(self) -> None:
        self._connection.insert(messages.name, *self._rows)
        self._rows, self._size = [], 0
