"""Finds a message by its id or the beginning of one, and the session it belongs to."""

from crushpy.core.errors import UsageError
from crushpy.security.sanitize import encodable
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.connection import Connection
from crushpy.storage.records import MessagePlace
from crushpy.storage.rows import Row

_SHOWN = 5
"""How many messages an error lists where an id fits several."""
_FROM = (
    "SELECT message.id, message.session_id, message.number, session.root_id FROM message "
    "JOIN session ON session.id = message.session_id "
    "WHERE message.id >= :start AND message.id < :end ORDER BY message.id LIMIT 1000"
)
_LAST = "\U0010ffff"
HINT = "`crushpy sessions show ID --json` prints the messages with their ids."


class MessageLookup:
    def __init__(self, connection: Connection, boundaries: Boundaries) -> None:
        self._connection = connection
        self._boundaries = boundaries

    def find(self, name: str, within: str) -> MessagePlace:
        """A message of this session or of those it continues, as far as they led here."""
        wanted = encodable(name.strip())
        if not wanted:
            raise UsageError("the message id is empty", HINT)
        reach = dict(self._boundaries.reach(within))
        rows = self._connection.execute(_FROM, {"start": wanted, "end": wanted + _LAST}).all()
        here = [row for row in rows if row.number <= reach.get(row.session_id, 0)]
        exact = [row for row in here if row.id == wanted]
        if exact or len(here) == 1:
            row = (exact or here)[0]
            return MessagePlace(row.id, row.session_id)
        if here:
            names = ", ".join(row.id for row in here[:_SHOWN]) + (", ..." if len(here) > _SHOWN else "")
            raise UsageError(f"several messages start with {wanted!r}: {names}", "Give more of the id.")
        raise self._elsewhere(wanted, within, rows[0] if rows else None)

    def _elsewhere(self, wanted: str, within: str, row: Row | None) -> UsageError:
        if row is None:
            return UsageError(f"there is no message {wanted!r} in session {within} or before it", HINT)
        return UsageError(
            f"message {row.id} belongs to session {row.session_id}, which does not lead to session {within}",
            f"Name session {row.session_id} instead.",
        )
