"""`store.pins`: the pinned texts of a conversation."""

from collections.abc import Sequence

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Pin
from crushpy.security.sanitize import encodable
from crushpy.storage.generated import statements as sql
from crushpy.storage.storage_thread import Subject, stored


class PinStore(Subject):
    """Pins belong to a conversation: all its sessions and branches share them."""

    @stored
    def load(self, root_id: str) -> list[Pin]:
        """The pins of a conversation, by number."""
        return self._load(root_id)

    def _load(self, root_id: str) -> list[Pin]:
        rows = self._db.execute(sql.LIST_PINS, root=root_id)
        return [Pin(row.number, row.kind, row.text, row.source, row.created_at) for row in rows]  # pyright: ignore[reportArgumentType]

    @stored
    def add(self, root_id: str, pin: Pin, known: Sequence[int]) -> Pin | None:
        """Stores a pin under the next number. None if the pins are not those `known` any more."""
        with self._db.transaction(durable=True, session=root_id):
            numbers = [one.number for one in self._load(root_id)]
            if numbers != list(known):
                return None
            number = max(numbers, default=0) + 1
            self._db.execute(
                sql.INSERT_PIN,
                root_id=root_id,
                number=number,
                kind=pin.kind,
                text=encodable(pin.text),
                source=encodable(pin.source),
                created_at=pin.created_at,
            )
        return msgspec.structs.replace(pin, number=number)

    @stored
    def remove(self, root_id: str, number: int) -> Pin:
        """Removes a pin and returns it. `UsageError` if there is none with that number."""
        with self._db.transaction(durable=True, session=root_id):
            found = {one.number: one for one in self._load(root_id)}
            if number not in found:
                numbers = ", ".join(map(str, found)) or "none"
                raise UsageError(
                    f"there is no pin {number} in this conversation; there are: {numbers}",
                    f"`crushpy sessions pins {root_id}` lists them.",
                )
            self._db.execute(sql.DELETE_PIN, root=root_id, number=number)
        return found[number]
