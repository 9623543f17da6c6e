"""Reads a terminal's pastes whole.

Textual's own reader takes a paste letter by letter (seven seconds for five megabytes), and turns what follows
an escape character in it into key presses: a pasted log with colours could press Enter.
"""

import re
from collections.abc import Callable, Generator, Iterable

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.keys import Keys
from textual.message import Message

from crushpy.tui.terminal.pace import ANSWER

_HELD = len(BRACKETED_PASTE_END) - 1
_ENTER_HELD = re.compile(r"\x1b(?:\r|\n|\[27;([2-8]);13~)")
"""Enter with a key held, in the ways that Textual takes for something else."""
_ALT = "3"


class PasteReader(XTermParser):
    """Takes what stands between the paste marks, and leaves the rest to Textual."""

    def __init__(self, debug: bool = False, answered: Callable[[], None] = lambda: None) -> None:
        """`answered` is called where the terminal says that it has drawn what was written."""
        self._answered = answered
        self._pasted: list[str] | None = None
        """Pieces of the paste that is coming in."""
        self._open_end = ""
        """The last letters read, where they may be the beginning of a mark."""
        self._told = False
        """Whether Textual's reader saw the mark too, since it came in two pieces."""
        super().__init__(debug)

    @property
    def is_half_way(self) -> bool:
        """Only time can tell whether what was read is a whole key."""
        return self._timeout_time is not None

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        while data:
            data = yield from (self._read_keys(data) if self._pasted is None else self._read_paste(data))

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if sequence == ANSWER:
            self._answered()
            return (events.Key(Keys.Ignore, sequence),)
        return super()._sequence_to_key_events(sequence, alt)

    def _read_keys(self, data: str) -> Generator[Message, None, str]:
        """Reads up to the beginning of a paste; returns what is left."""
        if self._open_end == "\x1b" and self.is_half_way and data[0] in "\r\n":  # Alt+Enter in two pieces
            data = f"[13;{_ALT}u{data[1:]}"
        seen = len(self._open_end)
        data = self._open_end + data
        start = data.find(BRACKETED_PASTE_START)
        if start < 0:
            self._open_end = _open_end(data)
            yield from super().feed(_plain_enters(data[seen:]))
            return ""
        end = start + len(BRACKETED_PASTE_START)
        self._told = start < seen
        before = data[seen : end if self._told else start]
        if before:
            yield from super().feed(_plain_enters(before))
        self._pasted, self._open_end = [], ""
        return data[end:]

    def _read_paste(self, data: str) -> Generator[Message, None, str]:
        """Reads up to the end of the paste; returns what is left."""
        assert self._pasted is not None
        data = self._open_end + data
        end = data.find(BRACKETED_PASTE_END)
        if end < 0:
            self._pasted.append(data[:-_HELD])
            self._open_end = data[-_HELD:]
            return ""
        text = "".join([*self._pasted, data[:end]])
        self._pasted, self._open_end = None, ""
        if self._told:
            for _empty_paste in super().feed(BRACKETED_PASTE_END):
                pass
        yield events.Paste(text.replace("\0", ""))
        return data[end + len(BRACKETED_PASTE_END) :]


def _plain_enters(keys: str) -> str:
    """Keys with every Enter that has another key held written as Textual reads it."""
    return _ENTER_HELD.sub(lambda found: f"\x1b[13;{found[1] or _ALT}u", keys) if "\x1b" in keys else keys


def _open_end(text: str) -> str:
    """The longest end of `text` that a paste mark may begin with."""
    for length in range(len(BRACKETED_PASTE_START) - 1, 0, -1):
        if text.endswith(BRACKETED_PASTE_START[:length]):
            return BRACKETED_PASTE_START[:length]
    return ""
