"""Reads server-sent events out of a stream of bytes. Pure."""


class EventReader:
    """Feed it bytes, cut anywhere; it gives the data of each event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        lines = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if (event := self._line(line)) is not None:
                events.append(event)
        return events

    def end(self) -> list[bytes]:
        """The stream is over: some servers leave out the empty line after the last event."""
        events = [self._line(self._rest), self._line(b"")]
        self._rest = b""
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
