"""How large things may get, and the one way to make a text shorter: keep head and tail, say what was cut."""

from crushpy.messages import Data

MAX_RESULT_CHARS = 30_000
"""One tool result, as the model gets it."""
MAX_LINE_CHARS = 2_000
"""One line of a file or of a search."""


class Truncated(Data, frozen=True):
    text: str
    cut_chars: int = 0
    """How many characters of the original are missing; 0 where it came through whole."""


def truncate(text: str, limit: int = MAX_RESULT_CHARS) -> Truncated:
    """`text` in at most `limit` characters and a marker line: the middle is cut, between lines if it can."""
    if len(text) <= limit:
        return Truncated(text)
    head_room = max(limit, 0) // 2
    tail_room = max(limit, 0) - head_room
    head = text[: _head_end(text, head_room)]
    tail = text[_tail_start(text, tail_room) :]
    cut = len(text) - len(head) - len(tail)
    return Truncated(join_cut(head, tail, cut), cut)


def join_cut(head: str, tail: str, cut_chars: int) -> str:
    """Head and tail of something longer, with the marker on a line of its own between them."""
    border = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{border}{marker(cut_chars)}\n{tail}"


def marker(cut_chars: int) -> str:
    return f"[... {cut_chars:,} characters cut ...]"


def cut_line(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """The beginning of one line, with the marker behind it where something was cut."""
    if len(line) <= limit:
        return line
    return f"{line[:limit]} {marker(len(line) - limit)}"


def _head_end(text: str, room: int) -> int:
    """Where the head ends: after a line, unless that would give up more than half of its room."""
    border = text.rfind("\n", 0, room) + 1
    return border if border > room // 2 else room


def _tail_start(text: str, room: int) -> int:
    """Where the tail begins: at a line's start, unless that would give up more than half of its room."""
    start = len(text) - room
    if start == 0 or text[start - 1] == "\n":
        return start
    border = text.find("\n", start) + 1
    return border if 0 < border <= start + room // 2 else start
