"""Vim's keys for the prompt: motions, the command parser, and the adapter to a text area."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from textual import events
from textual.widgets import TextArea
from textual.widgets.text_area import Document

Motion = Callable[[str, int, int], int]
"""Text, position and count to a position."""


class Reach(NamedTuple):
    start: int
    end: int
    lines: bool = False


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    """Where the line's break is, or the end of the text."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _first_letter(text: str, at: int) -> int:
    start, end = _line_start(text, at), _line_end(text, at)
    return start + len(text[start:end]) - len(text[start:end].lstrip(" \t"))


def _last_letter(text: str, at: int) -> int:
    """The last position of the line that the cursor can be on."""
    start, end = _line_start(text, at), _line_end(text, at)
    return max(start, end - 1)


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _vertical(text: str, at: int, count: int) -> int:
    """`count` lines down, or up if negative, in the same column if the line is long enough."""
    column, starts = at - _line_start(text, at), _line_starts(text)
    row = text.count("\n", 0, at) + count
    start = starts[max(0, min(row, len(starts) - 1))]
    return min(start + column, _line_end(text, start))


def _line_of(text: str, number: int) -> int:
    """The first letter of the line of that number, counted from one."""
    starts = _line_starts(text)
    return _first_letter(text, starts[min(number, len(starts)) - 1])


_RUN = re.compile(r"(?P<word>\w+|[^\w\s]+)|\s+")
"""Letters, signs or blanks in a row; the first two are words."""


def _words(text: str) -> list[tuple[int, int]]:
    return [run.span() for run in _RUN.finditer(text) if run["word"]]


def _nth(places: list[int], count: int, otherwise: int) -> int:
    return places[count - 1] if len(places) >= count else otherwise


def _word_end(text: str, at: int, count: int) -> int:
    return _nth([end - 1 for _, end in _words(text) if end - 1 > at], count, max(0, len(text) - 1))


def _find(text: str, at: int, count: int, how: str, letter: str) -> int | None:
    """`f`, `F`, `t` and `T`, within the line; None if there is no such letter."""
    start, end, place = _line_start(text, at), _line_end(text, at), at
    for _ in range(count):
        if how in "ft":
            # A second `t` must get past the letter that the first one stopped at.
            found = text.find(letter, place + 1, end)
        else:
            found = text.rfind(letter, start, place)
        if found < 0:
            return None
        place = found
    return place - 1 if how == "t" else place + 1 if how == "T" else place


def _word_around(text: str, at: int, *, blanks: bool) -> Reach:
    """The word under the cursor, optionally with the blanks after it."""
    start, end = _line_start(text, at), _line_end(text, at)
    if at >= end:
        return Reach(at, at)
    first, last = next(run.span() for run in _RUN.finditer(text, start, end) if run.end() > at)
    if blanks:
        behind = end - len(text[last:end].lstrip(" \t"))
        if behind == last:
            first = start + len(text[start:first].rstrip(" \t"))
        last = behind
    return Reach(first, last)


def _whole_lines(text: str, one: int, other: int) -> Reach:
    """The lines from one position to another, with the break behind them."""
    one, other = sorted((one, other))
    end = _line_end(text, other)
    return Reach(_line_start(text, one), min(len(text), end + 1), lines=True)


_MOTIONS: dict[str, Motion] = {
    "h": lambda text, at, count: max(_line_start(text, at), at - count),
    "l": lambda text, at, count: min(_line_end(text, at), at + count),
    "j": _vertical,
    "k": lambda text, at, count: _vertical(text, at, -count),
    "w": lambda text, at, count: _nth([start for start, _ in _words(text) if start > at], count, len(text)),
    "b": lambda text, at, count: _nth([start for start, _ in _words(text) if start < at][::-1], count, 0),
    "e": _word_end,
    "0": lambda text, at, _: _line_start(text, at),
    "^": lambda text, at, _: _first_letter(text, at),
    "$": lambda text, at, count: _last_letter(text, _vertical(text, at, count - 1)),
    "gg": lambda text, _, count: _line_of(text, count),
    "G": lambda text, _, count: _line_of(text, count),
}

_MOTIONS[" "] = _MOTIONS["l"]

VimMode = Literal["insert", "normal"]
MAX_COUNT = 999
"""The largest count; a larger one is a key that was held down."""
_COMMAND = re.compile(r"([1-9][0-9]*)?(?:([dcy])([1-9][0-9]*)?)?(.*)", re.DOTALL)
_SHORT = {"x": "dl", "X": "dh", "D": "d$", "C": "c$", "S": "cc", "s": "cl", "Y": "yy"}
_INSERTS = "iIaAoO"


class Edited(NamedTuple):
    text: str
    cursor: int


class Vim:
    """A state machine over a text and a cursor. It starts in insert mode; each command is one undo step."""

    def __init__(self) -> None:
        self.mode: VimMode = "insert"
        self.typed = ""
        """The beginning of a command."""
        self._register = Reach(0, 0), ""
        self._undo: list[Edited] = []
        self._redo: list[Edited] = []
        self._found: tuple[str, str] | None = None
        self._last_change: tuple[str, str] | None = None
        """The last command that changed the text, and the text inserted after it."""
        self._inserting: tuple[str, Edited] | None = None
        self.reset("")

    # --- modes -------------------------------------------------------------------------------------------

    def leave_insert(self, text: str, cursor: int) -> Edited:
        if self._inserting is not None:
            command, before = self._inserting
            self._last_change = (command, _inserted(before, text, cursor))
            self._inserting = None
        self.mode, self.typed = "normal", ""
        return Edited(text, _MOTIONS["h"](text, cursor, 1))

    def reset(self, text: str, mode: VimMode | None = None) -> None:
        """Starts over with another text: the undo history of the previous one does not apply to it."""
        self.typed, self.mode = "", mode or self.mode
        self._undo.clear()
        self._redo.clear()
        self._inserting = None
        if self.mode == "insert":
            self._undo.append(Edited(text, len(text)))
            self._inserting = ("i", Edited(text, len(text)))

    # --- keys --------------------------------------------------------------------------------------------

    def press(self, key: str, text: str, cursor: int) -> Edited:
        """A key in normal mode: a letter, or `ctrl+r`."""
        now = Edited(text, max(0, min(cursor, len(text))))
        if key == "ctrl+r":
            self.typed = ""
            return self._step(self._redo, self._undo, now)
        self.typed += key
        done = self._run(self.typed, now)
        if done is None:
            return now
        self.typed = ""
        return done if self.mode == "insert" else _on_a_letter(done)

    def _run(self, typed: str, now: Edited) -> Edited | None:
        """Runs a complete command; None while it is incomplete."""
        found = _COMMAND.fullmatch(typed)
        assert found is not None
        first, operator, second, rest = found.groups()
        count = min(MAX_COUNT, int(first or 1) * int(second or 1))
        if not rest:
            return None
        if not operator and rest in _SHORT:
            operator, rest = _SHORT[rest][0], _SHORT[rest][1:]
        if rest in ("g", "i", "a") and (rest == "g" or operator):
            return None
        if rest[0] in "fFtTr" and len(rest) == 1:
            return None
        if rest == "G" and not (first or second):
            count = now.text.count("\n") + 1
        if operator:
            return self._operate(operator, rest, count, typed, now)
        return self._command(rest, count, typed, now)

    def _command(self, rest: str, count: int, typed: str, now: Edited) -> Edited:
        text, at = now
        if rest in _INSERTS:
            return self._insert(rest, typed, now)
        if rest == "u":
            for _ in range(count):
                now = self._step(self._undo, self._redo, now)
            return now
        if rest == ".":
            return self._again(now)
        if rest in ("p", "P"):
            return self._put(rest, count, typed, now)
        if rest == "~" or rest[0] == "r":
            swaps, end = rest == "~", min(_line_end(text, at), at + count)
            if not swaps and (end < at + count or not rest[1].isprintable()):
                return now
            self._changes(now, typed)
            new = text[at:end].swapcase() if swaps else rest[1] * count
            return Edited(text[:at] + new + text[end:], end if swaps else end - 1)
        to = self._goal(rest, count, now)
        return now if to is None else Edited(text, to)

    # --- motions -----------------------------------------------------------------------------------------

    def _goal(self, rest: str, count: int, now: Edited) -> int | None:
        """The target of a motion; None if it has none."""
        text, at = now
        if rest[0] in "fFtT" and len(rest) == 2:
            self._found = (rest[0], rest[1])
            return _find(text, at, count, rest[0], rest[1])
        if rest in _MOTIONS:
            return _MOTIONS[rest](text, at, count)
        if rest not in (";", ",") or self._found is None:
            return None
        how, letter = self._found
        how = how.swapcase() if rest == "," else how
        # From where `t` stopped, the next one is meant.
        start = at + {"t": 1, "T": -1}.get(how, 0)
        return _find(text, max(0, start), count, how, letter)

    def _reach(self, operator: str, rest: str, count: int, now: Edited) -> Reach | None:
        text, at = now
        if rest == operator:
            return _whole_lines(text, at, _vertical(text, at, count - 1))
        if rest in ("iw", "aw"):
            return _word_around(text, at, blanks=rest == "aw")
        if rest == "w" and operator == "c" and at < len(text) and not text[at].isspace():
            # As vim does: the blanks after the word stay.
            ends = at + 1 >= len(text) or _word_end(text, at, 1) != _word_end(text, at - 1, 1)
            end = _word_end(text, at - 1 if ends else at, count) + 1
            return Reach(at, min(end, len(text)))
        to = self._goal(rest, count, now)
        if to is None:
            return None
        if rest in ("j", "k", "gg", "G"):
            return _whole_lines(text, at, to)
        if rest == "w" and count == 1:  # the last word of a line does not take the break with it
            to = min(to, max(at, _line_end(text, at)))
        start, end = sorted((at, to))
        if rest in ("e", "$") or rest[0] in "ft" or (rest == ";" and self._found and self._found[0] in "ft"):
            end = min(end + 1, _line_end(text, end))
        return Reach(start, end)

    # --- changes -----------------------------------------------------------------------------------------

    def _operate(self, operator: str, rest: str, count: int, typed: str, now: Edited) -> Edited:
        reach = self._reach(operator, rest, count, now)
        if reach is None:
            return now
        text, at = now
        taken = text[reach.start : reach.end]
        self._register = reach, taken
        if operator == "y":
            return Edited(text, at if reach.lines else reach.start)
        self._changes(now, typed)
        if operator == "c":
            end = reach.end - 1 if reach.lines and taken.endswith("\n") else reach.end
            return self._inserts(typed, Edited(text[: reach.start] + text[end:], reach.start))
        start = reach.start
        if reach.lines and start and not taken.endswith("\n"):
            start -= 1  # the last line goes with the break before it
        left = text[:start] + text[reach.end :]
        start = min(start, len(left))
        return Edited(left, _first_letter(left, start) if reach.lines else start)

    def _put(self, key: str, count: int, typed: str, now: Edited) -> Edited:
        (reach, taken), (text, at) = self._register, now
        if not taken:
            return now
        self._changes(now, typed)
        if reach.lines:
            lines = (taken.removesuffix("\n") + "\n") * count
            if key == "P":
                start = _line_start(text, at)
                return Edited(text[:start] + lines + text[start:], start)
            end = _line_end(text, at)
            return Edited(text[:end] + "\n" + lines[:-1] + text[end:], end + 1)
        start = min(at + 1, _line_end(text, at)) if key == "p" else at
        return Edited(text[:start] + taken * count + text[start:], start + len(taken) * count - 1)

    def _insert(self, key: str, typed: str, now: Edited) -> Edited:
        text, at = now
        self._changes(now, typed)
        start, end = _line_start(text, at), _line_end(text, at)
        if key in "oO":
            place = end if key == "o" else start
            text, at = f"{text[:place]}\n{text[place:]}", place + (key == "o")
        else:
            at = {"i": at, "a": min(at + 1, end), "I": _first_letter(text, at), "A": end}[key]
        return self._inserts(typed, Edited(text, at))

    def _inserts(self, typed: str, now: Edited) -> Edited:
        self.mode, self._inserting = "insert", (typed, now)
        return now

    def _changes(self, before: Edited, typed: str) -> None:
        self._undo.append(before)
        del self._undo[:-200]
        self._redo.clear()
        self._last_change = (typed, "")

    def _again(self, now: Edited) -> Edited:
        if self._last_change is None:
            return now
        typed, inserted = self._last_change
        done = self._run(typed, now) or now
        if self.mode == "insert":
            text, at = done
            done = Edited(text[:at] + inserted + text[at:], max(0, at + len(inserted) - 1))
            self.mode, self._inserting = "normal", None
        self._last_change = (typed, inserted)
        return done

    def _step(self, come_from: list[Edited], to: list[Edited], now: Edited) -> Edited:
        while come_from:
            there = come_from.pop()
            if there.text != now.text:
                to.append(now)
                return _on_a_letter(there)
        return now


def _on_a_letter(edited: Edited) -> Edited:
    text, at = edited
    at = max(0, min(at, len(text)))
    return Edited(text, min(at, _last_letter(text, at)))


def _inserted(before: Edited, text: str, cursor: int) -> str:
    """The text typed since `before`, if it is in one piece before the cursor."""
    grown = len(text) - len(before.text)
    piece = text[before.cursor : before.cursor + grown] if grown > 0 else ""
    same = text[: before.cursor] + text[before.cursor + max(grown, 0) :] == before.text
    return piece if same and before.cursor <= cursor else ""


_LETTERS = {"backspace": "h", "delete": "x", "home": "0", "end": "$", "ctrl+r": "ctrl+r"}


class VimKeys:
    """Connects the state machine to a text area, which has the class `-normal` in normal mode."""

    def __init__(self, area: TextArea, tell: Callable[[str], object]) -> None:
        """`tell` is called with vim's name of the mode, now and whenever it changes."""
        self._area = area
        self._tell = tell
        self._vim = Vim()
        self._vim.reset(area.text)
        self._mark()

    def another_text(self, text: str) -> None:
        """The area shows another text; an empty one starts in insert mode."""
        self._vim.reset(text, None if text else "insert")
        self._mark()

    def take(self, event: events.Key) -> bool:
        """Handles a key; True if it was a command."""
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
        return self._document.get_index_from_location(self._area.cursor_location)

    @property
    def _document(self) -> Document:
        return cast(Document, self._area.document)

    def _apply(self, edited: Edited) -> None:
        area = self._area
        if area.text != edited.text:
            area.replace(edited.text, area.document.start, area.document.end)
        area.move_cursor(self._document.get_location_from_index(edited.cursor))
        self._mark()

    def _mark(self) -> None:
        self._area.set_class(self._vim.mode == "normal", "-normal")
        self._tell(self._vim.mode.upper())
