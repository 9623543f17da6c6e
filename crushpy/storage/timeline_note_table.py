"""What happened between messages, session by session. Lives on the storage thread."""

from collections.abc import Sequence

from crushpy.core.timeline_notes import TimelineNote
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection

_OF = "SELECT * FROM mark WHERE session_id = :session OR after IN ({}) ORDER BY number"


class MarkTable:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._of = _OF.format(connection.dialect.items_of.format(":carried"))

    def add(self, session_id: str, mark: TimelineNote) -> None:
        row = {"session_id": session_id, "after": mark.after, "kind": mark.kind, "at": mark.at}
        row |= {"early": mark.early, "text": encodable(mark.text), "hint": encodable(mark.hint)}
        with self._connection.transaction(session=session_id):
            self._connection.insert("mark", row)

    def of(self, session_id: str, carried: Sequence[str]) -> list[TimelineNote]:
        """Those of a session, and those after messages that were carried into it."""
        values = {"session": session_id, "carried": to_column(carried)}
        return [
            TimelineNote(row.kind, row.text, row.hint, row.after, bool(row.early), row.at)
            for row in self._connection.execute(self._of, values)
        ]
