"""Brings vim's keys to a text area: keys in, edits out. The machine decides what they mean."""

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea

from crushpy.tui.widgets.vim.machine import Edited, Vim

_LETTERS = {"backspace": "h", "delete": "x", "home": "0", "end": "$", "ctrl+r": "ctrl+r"}


class VimKeys:
    """While commands are typed, the area has the class `-normal`."""

    def __init__(self, area: TextArea, tell: Callable[[str], None]) -> None:
        """`tell` is called with the mode, in vim's word for it, at once and whenever it changes."""
        self._area = area
        self._tell = tell
        self._vim = Vim()
        self._vim.reset(area.text)
        self._mark()

    def another_text(self, text: str) -> None:
        """The area shows another text; an empty one is there to be written."""
        self._vim.reset(text, None if text else "insert")
        self._mark()

    def take(self, event: events.Key) -> bool:
        """True where the key was a command."""
        vim, area = self._vim, self._area
        if event.key == "escape":
            if vim.mode == "insert":
                self._apply(vim.leave_insert(area.text, self._cursor))
                return True
            began, vim.typed = vim.typed, ""
            return bool(began)
        if vim.mode == "insert":
            return False
        if event.key in ("j", "k") and not vim.typed:
            (area.action_cursor_down if event.key == "j" else area.action_cursor_up)()
            return True
        letter = _LETTERS.get(event.key) or (event.character if event.is_printable else None)
        if letter is None or event.key.startswith("alt+"):
            return False
        self._apply(vim.press(letter, area.text, self._cursor))
        return True

    @property
    def _cursor(self) -> int:
        row, column = self._area.cursor_location
        return sum(len(line) + 1 for line in self._area.text.split("\n")[:row]) + column

    def _apply(self, edited: Edited) -> None:
        area = self._area
        before, after = area.text, edited.text
        if before != after:
            start = 0
            while start < min(len(before), len(after)) and before[start] == after[start]:
                start += 1
            same = 0
            while same < min(len(before), len(after)) - start and before[-1 - same] == after[-1 - same]:
                same += 1
            piece, end = after[start : len(after) - same], len(before) - same
            area.replace(piece, _place(before, start), _place(before, end))
        area.move_cursor(_place(area.text, edited.cursor))
        self._mark()

    def _mark(self) -> None:
        self._area.set_class(self._vim.mode == "normal", "-normal")
        self._tell(self._vim.mode.upper())


def _place(text: str, at: int) -> tuple[int, int]:
    """Row and column of a position."""
    before = text[:at]
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)
