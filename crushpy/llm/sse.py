"""Reads server-sent events out of a stream of bytes. Pure."""

from crushpy.llm.errors import CutStream

LIMIT = 64 * 1024 * 1024


class EventReader:
    """Feed it bytes, cut anywhere; it gives the data of each event that is complete.

    Raises CutStream for an event of more than `limit` bytes: one without an end would fill the memory.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        """Pieces of a line that has no end yet."""
        self._data: list[bytes] = []
        self._held = 0
        """Bytes of both."""

    def feed(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        if b"\n" in chunk:
            lines = chunk.split(b"\n")
            if self._rest:
                lines[0] = b"".join((*self._rest, lines[0]))
                self._rest.clear()
            chunk = lines.pop()
            for line in lines:
                if (event := self._line(line)) is not None:
                    events.append(event)
            self._held = sum(map(len, self._data))
        if chunk:
            self._rest.append(chunk)
            self._held += len(chunk)
        if self._held > self._limit:
            raise CutStream(f"the server sent a piece of more than {self._limit:,} bytes")
        return events

    def end(self) -> list[bytes]:
        """The stream is over: some servers leave out the empty line after the last event."""
        events = [self._line(b"".join(self._rest)), self._line(b"")]
        self._rest.clear()
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data.clear()
            return event
        elif line.startswith(b"error:"):
            # An older llama.cpp writes its errors in a field of their own.
            self._data.append(b'{"error":' + line[6:] + b"}")
        return None
