"""Vim's keys for the prompt: motions, the command parser, and the adapter to a text area."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from textual import events
from textual.widgets import TextArea
from textual.widgets.text_area import Document

VimMode = Literal["insert", "normal"]
MAX_COUNT = 999
"""The largest count; a larger one is a key that was held down."""
REDO = "\x12"
"""The character of Ctrl+R."""
_COMMAND = re.compile(
    r"([1-9]\d*+)?(?:([dcy])([1-9]\d*+)?([fFtTgia].|[^1-9fFtTgia])|([fFtTrg].|[^1-9dcyfFtTrg]))", re.DOTALL
)
"""A complete command: a count, then an operator with a count and a target, or a single command."""
_SHORT = {"x": "dl", "X": "dh", "D": "d$", "C": "c$", "S": "cc", "s": "cl", "Y": "yy"}


class Edited(NamedTuple):
    text: str
    cursor: int


class Reach(NamedTuple):
    """What an operator acts on; whole lines include the break behind them."""

    start: int
    end: int
    lines: bool = False


# --- motions ---------------------------------------------------------------------------------------------


def _line(text: str, at: int) -> tuple[int, int]:
    """Where the line begins, and where its break is, or the end of the text."""
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _first_letter(text: str, at: int) -> int:
    start, end = _line(text, at)
    return end - len(text[start:end].lstrip(" \t"))


def _last_letter(text: str, at: int) -> int:
    """The last position of the line that the cursor can be on."""
    start, end = _line(text, at)
    return max(start, end - 1)


def _row(text: str, number: int) -> tuple[int, int]:
    """The line of that number, counted from zero, or the nearest."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return _line(text, starts[max(0, min(number, len(starts) - 1))])


def _vertical(text: str, at: int, count: int) -> int:
    """`count` lines down, or up if negative, in the same column if the line is long enough."""
    start, end = _row(text, text.count("\n", 0, at) + count)
    return min(start + at - _line(text, at)[0], end)


_RUN = re.compile(r"(?P<word>\w+|[^\w\s]+)|\s+")
"""Letters, signs or blanks in a row; the first two are words."""


def _words(text: str) -> list[tuple[int, int]]:
    return [run.span() for run in _RUN.finditer(text) if run["word"]]


def _nth(places: list[int], count: int, otherwise: int) -> int:
    return places[count - 1] if len(places) >= count else otherwise


def _find(text: str, at: int, count: int, how: str, letter: str) -> int | None:
    """`f`, `F`, `t` and `T`, within the line; None if there is no such letter."""
    places = [place for place in range(*_line(text, at)) if text[place] == letter]
    ahead = [place for place in places if place > at]
    found = _nth(ahead if how in "ft" else [place for place in places if place < at][::-1], count, -1)
    return None if found < 0 else found + {"t": -1, "T": 1}.get(how, 0)


def _word_around(text: str, at: int, *, blanks: bool) -> Reach:
    """The word under the cursor, optionally with the blanks after it."""
    start, end = _line(text, at)
    if at >= end:
        return Reach(at, at)
    first, last = next(run.span() for run in _RUN.finditer(text, start, end) if run.end() > at)
    if blanks:
        behind = end - len(text[last:end].lstrip(" \t"))
        if behind == last:
            first = start + len(text[start:first].rstrip(" \t"))
        last = behind
    return Reach(first, last)


_MOTIONS: dict[str, Callable[[str, int, int], int]] = {
    "h": lambda text, at, count: max(_line(text, at)[0], at - count),
    "l": lambda text, at, count: min(_line(text, at)[1], at + count),
    " ": lambda text, at, count: min(_line(text, at)[1], at + count),
    "j": _vertical,
    "k": lambda text, at, count: _vertical(text, at, -count),
    "w": lambda text, at, count: _nth([start for start, _ in _words(text) if start > at], count, len(text)),
    "b": lambda text, at, count: _nth([start for start, _ in _words(text) if start < at][::-1], count, 0),
    "e": lambda text, at, count: _nth(
        [end - 1 for _, end in _words(text) if end - 1 > at], count, max(0, len(text) - 1)
    ),
    "0": lambda text, at, _: _line(text, at)[0],
    "^": lambda text, at, _: _first_letter(text, at),
    "$": lambda text, at, count: _last_letter(text, _vertical(text, at, count - 1)),
    "gg": lambda text, _, count: _first_letter(text, _row(text, count - 1)[0]),
    "G": lambda text, _, count: _first_letter(text, _row(text, count - 1)[0]),
}
"""Text, position and count to a position."""


def _goal(motion: str, count: int, now: Edited) -> tuple[int, bool] | None:
    """The target of a motion, and whether an operator acts on the letter there; None if it has none."""
    text, at = now
    if motion in _MOTIONS:
        return _MOTIONS[motion](text, at, count), motion in "e$"
    if motion[0] not in "fFtT":
        return None
    to = _find(text, at, count, *motion)
    return None if to is None else (to, motion[0] in "ft")


def _reach(operator: str, target: str, count: int, now: Edited) -> Reach | None:
    text, at = now
    if target in ("iw", "aw"):
        return _word_around(text, at, blanks=target == "aw")
    if target == "w" and operator == "c" and at < len(text) and not text[at].isspace():
        # As vim does: the blanks after the word stay.
        return Reach(at, _nth([end for _, end in _words(text) if end > at], count, len(text)))
    doubled = _vertical(text, at, count - 1), False
    goal = doubled if target == operator else _goal(target, count, now)
    if goal is None:
        return None
    to, inclusive = goal
    if target == "w" and count == 1:  # the last word of a line does not take the break with it
        to = min(to, max(at, _line(text, at)[1]))
    start, end = sorted((at, to))
    if target in (operator, "j", "k", "gg", "G"):
        return Reach(_line(text, start)[0], min(len(text), _line(text, end)[1] + 1), lines=True)
    return Reach(start, min(end + 1, _line(text, end)[1]) if inclusive else end)


class Vim:
    """A state machine over a text and a cursor. It starts in insert mode; undo is the text area's."""

    def __init__(self) -> None:
        self.mode: VimMode = "insert"
        self.typed = ""
        """The beginning of a command."""
        self._register = "", False
        """What was deleted or copied, and whether it is whole lines."""

    def leave_insert(self, text: str, cursor: int) -> Edited:
        self.mode, self.typed = "normal", ""
        return Edited(text, _MOTIONS["h"](text, cursor, 1))

    # --- commands ----------------------------------------------------------------------------------------

    def press(self, key: str, text: str, cursor: int) -> Edited:
        """A key in normal mode."""
        now = Edited(text, cursor)
        self.typed += key
        done = self._run(self.typed, now)
        if done is None:
            return now
        self.typed = ""
        return done if self.mode == "insert" else on_a_letter(done)

    def _run(self, typed: str, now: Edited) -> Edited | None:
        """Runs a complete command; None while it is incomplete."""
        found = _COMMAND.fullmatch(typed)
        if found is None:
            return None
        first, operator, second, target, single = found.groups()
        count = min(MAX_COUNT, int(first or 1) * int(second or 1))
        if "G" in (target, single) and not (first or second):
            count = now.text.count("\n") + 1
        operator, target = _SHORT.get(single) or (operator, target)
        if operator:
            return self._operate(operator, target, count, now)
        return self._command(single, count, now)

    def _command(self, key: str, count: int, now: Edited) -> Edited:
        text, at = now
        if key in "iIaAoO":
            return self._insert(key, now)
        if key in "pP":
            return self._put(key, count, now)
        if key == "~" or key[0] == "r":
            swaps, end = key == "~", min(_line(text, at)[1], at + count)
            if not swaps and (end < at + count or not key[1].isprintable()):
                return now
            new = text[at:end].swapcase() if swaps else key[1] * count
            return Edited(text[:at] + new + text[end:], end if swaps else end - 1)
        goal = _goal(key, count, now)
        return now if goal is None else Edited(text, goal[0])

    # --- changes -----------------------------------------------------------------------------------------

    def _operate(self, operator: str, target: str, count: int, now: Edited) -> Edited:
        reach = _reach(operator, target, count, now)
        if reach is None:
            return now
        (start, end, lines), text = reach, now.text
        taken = text[start:end]
        self._register = taken, lines
        if operator == "y":
            return Edited(text, now.cursor if lines else start)
        if operator == "c":
            kept = "\n" if lines and taken.endswith("\n") else ""
            self.mode = "insert"
            return Edited(text[:start] + kept + text[end:], start)
        if lines and start and not taken.endswith("\n"):
            start -= 1  # the last line goes with the break before it
        left = text[:start] + text[end:]
        return Edited(left, _first_letter(left, start) if lines else start)

    def _put(self, key: str, count: int, now: Edited) -> Edited:
        (taken, lines), (text, at) = self._register, now
        if not taken:
            return now
        start, end = _line(text, at)
        if not lines:
            place = min(at + 1, end) if key == "p" else at
            return Edited(text[:place] + taken * count + text[place:], place + len(taken) * count - 1)
        whole = (taken.removesuffix("\n") + "\n") * count
        if key == "P":
            return Edited(text[:start] + whole + text[start:], start)
        return Edited(f"{text[:end]}\n{whole[:-1]}{text[end:]}", end + 1)

    def _insert(self, key: str, now: Edited) -> Edited:
        self.mode = "insert"
        (text, at), (start, end) = now, _line(*now)
        places = {"i": at, "a": min(at + 1, end), "I": _first_letter(text, at), "A": end, "o": end}
        place = places.get(key, start)
        if key in "oO":
            text = f"{text[:place]}\n{text[place:]}"
        return Edited(text, place + (key == "o"))


def on_a_letter(edited: Edited) -> Edited:
    text, at = edited
    return Edited(text, min(at, _last_letter(text, at)))


_LETTERS = {"backspace": "h", "delete": "x", "home": "0", "end": "$", "ctrl+r": REDO}


class VimKeys:
    """Connects the state machine to a text area, which has the class `-normal` in normal mode."""

    def __init__(self, area: TextArea, tell: Callable[[str], object]) -> None:
        """`tell` is called with vim's name of the mode, now and whenever it changes."""
        self._area = area
        self._tell = tell
        self._vim = Vim()
        self.another_text(area.text)

    def another_text(self, text: str) -> None:
        """The area shows another text; an empty one starts in insert mode."""
        self._vim.typed = ""
        if not text:
            self._vim.mode = "insert"
        self._mark()

    def take(self, event: events.Key) -> bool:
        """Handles a key; True if it was a command."""
        vim, area, document = self._vim, self._area, cast(Document, self._area.document)
        letter = _LETTERS.get(event.key) or (event.character if event.is_printable else None)
        now = area.text, document.get_index_from_location(area.cursor_location)
        if event.key == "escape" and vim.mode == "normal":
            began, vim.typed = vim.typed, ""
            return bool(began)
        if event.key == "escape":
            edited = vim.leave_insert(*now)
        elif vim.mode == "insert" or letter is None or event.key.startswith("alt+"):
            return False
        elif event.key in ("j", "k") and not vim.typed:
            (area.action_cursor_down if event.key == "j" else area.action_cursor_up)()
            return True
        elif letter in ("u", REDO) and (not vim.typed or vim.typed.isdecimal()):
            for _ in range(min(MAX_COUNT, int(vim.typed or 1))):
                (area.undo if letter == "u" else area.redo)()
            vim.typed = ""
            edited = on_a_letter(Edited(area.text, document.get_index_from_location(area.cursor_location)))
        else:
            edited = vim.press(letter, *now)
        area.history.checkpoint()  # each command is one step of undo
        if area.text != edited.text:
            area.replace(edited.text, document.start, document.end)
        area.move_cursor(document.get_location_from_index(edited.cursor))
        self._mark()
        return True

    def _mark(self) -> None:
        self._area.set_class(self._vim.mode == "normal", "-normal")
        self._tell(self._vim.mode.upper())
