"""The facts of messages, stored with them: what evidence is made of. Lives on the storage thread.

Whatever else stores a message, or stored it before there were facts, leaves them out; who needs them reads
that message once, and keeps them.
"""

from collections.abc import Mapping

from crushpy.core.messages import Data
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection

_ADD = (
    "INSERT INTO message_fact SELECT number, :facts FROM message WHERE id = :message ON CONFLICT DO NOTHING"
)
_OF = """
    SELECT message_fact.facts FROM message LEFT JOIN message_fact ON message_fact.number = message.number
    WHERE message.session_id = :session AND message.number <= :last ORDER BY message.seq
"""
_BATCH = 500
"""Messages whose facts are kept in one transaction."""


class FactTable:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, facts: Mapping[str, Data]) -> None:
        """Inside a transaction: the facts of stored messages, by their ids."""
        if facts:
            rows = [{"message": message, "facts": to_column(found)} for message, found in facts.items()]
            self._connection.execute(_ADD, rows)

    def of(self, session_id: str, last: int) -> list[str | None]:
        """For each message of a session up to number `last` its facts; None where they are not stored."""
        return self._connection.execute(_OF, {"session": session_id, "last": last}).scalars()

    def keep(self, session_id: str, facts: Mapping[str, Data]) -> None:
        """Of messages that were stored without them."""
        found = list(facts.items())
        for start in range(0, len(found), _BATCH):
            with self._connection.transaction(session=session_id):
                self.add(dict(found[start : start + _BATCH]))
