"""What happened between messages, session by session. Lives on the storage thread."""

from collections.abc import Sequence

from sqlalchemy import insert, or_, select

from crushpy.marks import Mark
from crushpy.sanitize import encodable
from crushpy.storage.connection import Connection
from crushpy.storage.tables import marks

_M = marks.c
_MOST = 500
"""Message ids in one statement: databases bound its values."""


class MarkTable:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, session_id: str, mark: Mark) -> None:
        row = {"session_id": session_id, "after": mark.after, "kind": mark.kind, "at": mark.at}
        row |= {"early": mark.early, "text": encodable(mark.text), "hint": encodable(mark.hint)}
        with self._connection.transaction(session=session_id):
            self._connection.execute(insert(marks), row)

    def of(self, session_id: str, carried: Sequence[str]) -> list[Mark]:
        """Those of a session, and those after messages that were carried into it."""
        found: dict[int, Mark] = {}
        for start in range(0, max(1, len(carried)), _MOST):
            ids = carried[start : start + _MOST]
            wanted = select(marks).where(or_(_M.session_id == session_id, _M.after.in_(ids)))
            for row in self._connection.execute(wanted):
                found[row.number] = Mark(row.kind, row.text, row.hint, row.after, row.early, row.at)
        return [found[number] for number in sorted(found)]
