"""What users pinned, conversation by conversation. Lives on the storage thread."""

from collections.abc import Sequence

from crushpy.core.errors import UsageError
from crushpy.core.messages import Pin
from crushpy.security.sanitize import encodable
from crushpy.storage.connection import Connection

_OF = "SELECT * FROM pin WHERE root_id = :root ORDER BY number"
_REMOVE = "DELETE FROM pin WHERE root_id = :root AND number = :number"


class PinTable:
    """Pins belong to a conversation: all its sessions and branches have the same."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def of(self, root_id: str) -> list[Pin]:
        rows = self._connection.execute(_OF, {"root": root_id})
        return [Pin(row.number, row.kind, row.text, row.source, row.created_at) for row in rows]

    def add(self, root_id: str, pin: Pin, known: Sequence[int]) -> Pin | None:
        """Stores a pin under the next number. None where there are others by now than those `known`."""
        with self._connection.transaction(durable=True, session=root_id):
            numbers = [one.number for one in self.of(root_id)]
            if numbers != list(known):
                return None
            number = max(numbers, default=0) + 1
            row = {"root_id": root_id, "number": number, "kind": pin.kind, "created_at": pin.created_at}
            row |= {"text": encodable(pin.text), "source": encodable(pin.source)}
            self._connection.insert("pin", row)
        return Pin(number, pin.kind, pin.text, pin.source, pin.created_at)

    def remove(self, root_id: str, number: int) -> Pin:
        with self._connection.transaction(durable=True, session=root_id):
            found = {one.number: one for one in self.of(root_id)}
            if number not in found:
                there = ", ".join(map(str, found)) or "none"
                raise UsageError(
                    f"there is no pin {number} in this conversation; there are: {there}",
                    f"`crushpy sessions pins {root_id}` lists them.",
                )
            self._connection.execute(_REMOVE, {"root": root_id, "number": number})
        return found[number]
