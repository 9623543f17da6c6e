"""Size limits, and the one way to truncate a text: keep head and tail, and mark what is missing."""

from crushpy.core.messages import Data

MAX_RESULT_CHARS = 30_000
"""One tool result, as the model gets it."""
MIN_RESULT_CHARS = 2_000
"""The same for the smallest window."""
MAX_LINE_CHARS = 2_000
"""One line of a file or of a search."""
MAX_LIVE_CHARS = 4_000
"""One piece of live output, as a person sees it."""
MAX_OUTPUT_FILE_BYTES = 50_000_000
"""The file with one full large output."""
MAX_FETCH_BYTES = 5_000_000
"""One fetched page, as it comes from the server."""


class Truncated(Data, frozen=True):
    text: str
    truncated_chars: int = 0
    """How many characters of the original are missing; 0 if it is complete."""
    lines: int = 0
    """How many lines the original had, if some are missing."""


def truncate(text: str, limit: int = MAX_RESULT_CHARS) -> Truncated:
    """`text` in at most `limit` characters and a marker line, its middle left out, at lines if possible."""
    kept = HeadTail(limit)
    kept.add(text)
    return kept.text()


def marker(truncated_chars: int) -> str:
    return f"[... {truncated_chars:,} characters truncated ...]"


def truncate_line(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """The beginning of one line, followed by the marker if something is missing."""
    if len(line) <= limit:
        return line
    return f"{line[:limit]} {marker(len(line) - limit)}"


class HeadTail:
    """A growing text in bounded memory: keeps only what is shown of it, as `truncate` says."""

    def __init__(self, limit: int = MAX_RESULT_CHARS) -> None:
        self._limit = limit
        self._head = ""
        self._pieces: list[str] = []
        self._piece_chars = 0
        """Characters in `_pieces`."""
        self.total = 0
        self._line_breaks = 0
        self._last_line_open = False
        """Whether the last line is incomplete."""

    def add(self, text: str) -> None:
        self.total += len(text)
        self._line_breaks += text.count("\n")
        self._last_line_open = not text.endswith("\n") if text else self._last_line_open
        self._pieces.append(text)
        self._piece_chars += len(text)
        if self._piece_chars > 2 * self._limit:
            self._drop_middle()

    def text(self) -> Truncated:
        rest = "".join(self._pieces)
        if self.total <= self._limit:
            return Truncated(rest)
        start, room = self._head or rest, max(self._limit, 0)
        # The head ends after a line, unless that would give up more than half of its room.
        line_start = start.rfind("\n", 0, room // 2) + 1
        head = start[: line_start if line_start > room // 4 else room // 2]
        tail = rest[_tail_start(rest, room - room // 2) :]
        missing = self.total - len(head) - len(tail)
        separator = "" if not head or head.endswith("\n") else "\n"
        lines = self._line_breaks + self._last_line_open
        return Truncated(f"{head}{separator}{marker(missing)}\n{tail}", missing, lines)

    def _drop_middle(self) -> None:
        """Drops what will not be shown. Rare: at least `limit` characters arrive between two calls."""
        rest = "".join(self._pieces)
        self._head = self._head or rest[: self._limit]
        rest = rest[len(rest) - self._limit :]
        self._pieces = [rest]
        self._piece_chars = len(rest)


def _tail_start(text: str, room: int) -> int:
    """Where the tail begins: at a line's start, unless that would give up more than half of its room."""
    start = len(text) - room
    if start == 0 or text[start - 1] == "\n":
        return start
    line_start = text.find("\n", start) + 1
    return line_start if 0 < line_start <= start + room // 2 else start
