"""Keys that came before there was a prompt: nobody takes them until it is there."""

import re
from threading import Event

from crushpy.tui.terminal.background import answered

_NOT_WHOLE = re.compile(rb"(?:\x1b(?:\][^\x07\x1b]*\x1b?|\[[0-9;?]*|O)?|[\xc0-\xff][\x80-\xbf]*)\Z")
"""What may go on with the next bytes: a letter, a key, or the answer to a question."""


class EarlyKeys:
    """What was read before the app was there; the rest stays with the terminal until `wanted` is set."""

    def __init__(self, data: bytes = b"") -> None:
        found = _NOT_WHOLE.search(data)
        end = found.start() if found else len(data)
        self.typed, self.light = answered(data[:end].decode("utf-8", "replace"))
        """What was typed, and whether the terminal said that its background is light."""
        self._rest = data[end:]
        self.wanted = Event()

    def take_rest(self) -> bytes:
        """What belongs before the next bytes that are read; once."""
        rest, self._rest = self._rest, b""
        return rest
