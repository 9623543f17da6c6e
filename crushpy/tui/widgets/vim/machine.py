"""vim's keys as a machine over a text and a cursor. It knows no widget: `press` tells what became of both."""

import re
from typing import Literal, NamedTuple

from crushpy.tui.widgets.vim import motions
from crushpy.tui.widgets.vim.motions import Reach

VimMode = Literal["insert", "normal"]
MOST = 999
"""The largest count; more is a key that was held down."""
_COMMAND = re.compile(r"([1-9][0-9]*)?(?:([dcy])([1-9][0-9]*)?)?(.*)", re.DOTALL)
_SHORT = {"x": "dl", "X": "dh", "D": "d$", "C": "c$", "S": "cc", "s": "cl", "Y": "yy"}
_INSERTS = "iIaAoO"


class Edited(NamedTuple):
    text: str
    cursor: int


class Vim:
    """Starts by inserting, as a prompt should. Undo is its own: one step for each command."""

    def __init__(self) -> None:
        self.mode: VimMode = "insert"
        self.typed = ""
        """The beginning of a command."""
        self._register = Reach(0, 0), ""
        self._undo: list[Edited] = []
        self._redo: list[Edited] = []
        self._found: tuple[str, str] | None = None
        self._last_change: tuple[str, str] | None = None
        """The last command that changed something, and what was inserted after it."""
        self._inserting: tuple[str, Edited] | None = None
        self.reset("")

    # --- modes -------------------------------------------------------------------------------------------

    def leave_insert(self, text: str, cursor: int) -> Edited:
        """Esc while inserting."""
        if self._inserting is not None:
            command, before = self._inserting
            self._last_change = (command, _inserted(before, text, cursor))
            self._inserting = None
        self.mode, self.typed = "normal", ""
        return Edited(text, motions.left(text, cursor, 1))

    def reset(self, text: str, mode: VimMode | None = None) -> None:
        """Another text is there: what was done to the one before cannot be taken back in it."""
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
        """What a whole command does; None while more of it is to come."""
        found = _COMMAND.fullmatch(typed)
        assert found is not None
        first, operator, second, rest = found.groups()
        count = min(MOST, int(first or 1) * int(second or 1))
        if not rest:
            return None
        if not operator and rest in _SHORT:
            operator, rest = _SHORT[rest][0], _SHORT[rest][1:]
        if rest in ("g", "i", "a") and (rest == "g" or operator):
            return None
        if rest[0] in "fFtTr" and len(rest) == 1:
            return None
        has_count = bool(first or second)
        if operator:
            return self._operate(operator, rest, count, has_count, typed, now)
        return self._command(rest, count, has_count, typed, now)

    def _command(self, rest: str, count: int, has_count: bool, typed: str, now: Edited) -> Edited:
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
        if rest[0] == "r":
            end = at + count
            if end > motions.line_end(text, at) or not rest[1].isprintable():
                return now
            self._changes(now, typed)
            return Edited(text[:at] + rest[1] * count + text[end:], end - 1)
        if rest == "~":
            end = min(motions.line_end(text, at), at + count)
            self._changes(now, typed)
            return Edited(text[:at] + text[at:end].swapcase() + text[end:], end)
        to = self._goal(rest, count, has_count, now)
        return now if to is None else Edited(text, to)

    # --- motions -----------------------------------------------------------------------------------------

    def _goal(self, rest: str, count: int, has_count: bool, now: Edited) -> int | None:
        """Where a motion leads; None where it leads nowhere."""
        text, at = now
        if rest[0] in "fFtT" and len(rest) == 2:
            self._found = (rest[0], rest[1])
            return motions.find(text, at, count, rest[0], rest[1])
        match rest:
            case "h":
                return motions.left(text, at, count)
            case "l" | " ":
                return motions.right(text, at, count)
            case "j":
                return motions.vertical(text, at, count)
            case "k":
                return motions.vertical(text, at, -count)
            case "w":
                return motions.word_forward(text, at, count)
            case "b":
                return motions.word_back(text, at, count)
            case "e":
                return motions.word_end(text, at, count)
            case "0":
                return motions.line_start(text, at)
            case "^":
                return motions.first_letter(text, at)
            case "$":
                return motions.last_letter(text, motions.vertical(text, at, count - 1))
            case "gg":
                return motions.line_of(text, count)
            case "G":
                return motions.line_of(text, count if has_count else text.count("\n") + 1)
            case ";" | "," if self._found is not None:
                how, letter = self._found
                how = how.swapcase() if rest == "," else how
                # From where `t` stopped, the next one is meant.
                start = at + {"t": 1, "T": -1}.get(how, 0)
                return motions.find(text, max(0, start), count, how, letter)
            case _:
                return None

    def _reach(self, operator: str, rest: str, count: int, has_count: bool, now: Edited) -> Reach | None:
        text, at = now
        if rest == operator:
            return motions.whole_lines(text, at, motions.vertical(text, at, count - 1))
        if rest in ("iw", "aw"):
            return motions.word_around(text, at, blanks=rest == "aw")
        if rest == "w" and operator == "c" and at < len(text) and not text[at].isspace():
            # As vim does: the blanks behind the word stay.
            end = motions.word_end(text, at - 1 if _one_letter(text, at) else at, count) + 1
            return Reach(at, min(end, len(text)))
        to = self._goal(rest, count, has_count, now)
        if to is None:
            return None
        if rest in ("j", "k", "gg", "G"):
            return motions.whole_lines(text, at, to)
        if rest == "w" and "\n" in text[at:to] and to < len(text) + 1:
            # The last word of a line does not take the break with it.
            to = min(to, max(at, motions.line_end(text, at))) if count == 1 else to
        start, end = sorted((at, to))
        if rest in ("e", "$") or rest[0] in "ft" or (rest == ";" and self._found and self._found[0] in "ft"):
            end = min(end + 1, motions.line_end(text, end))
        return Reach(start, end)

    # --- changes -----------------------------------------------------------------------------------------

    def _operate(
        self, operator: str, rest: str, count: int, has_count: bool, typed: str, now: Edited
    ) -> Edited:
        reach = self._reach(operator, rest, count, has_count, now)
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
        return Edited(left, motions.first_letter(left, start) if reach.lines else start)

    def _put(self, key: str, count: int, typed: str, now: Edited) -> Edited:
        (reach, taken), (text, at) = self._register, now
        if not taken:
            return now
        self._changes(now, typed)
        if reach.lines:
            lines = (taken.removesuffix("\n") + "\n") * count
            if key == "P":
                start = motions.line_start(text, at)
                return Edited(text[:start] + lines + text[start:], start)
            end = motions.line_end(text, at)
            return Edited(text[:end] + "\n" + lines[:-1] + text[end:], end + 1)
        start = min(at + 1, motions.line_end(text, at)) if key == "p" else at
        return Edited(text[:start] + taken * count + text[start:], start + len(taken) * count - 1)

    def _insert(self, key: str, typed: str, now: Edited) -> Edited:
        text, at = now
        self._changes(now, typed)
        start, end = motions.line_start(text, at), motions.line_end(text, at)
        match key:
            case "a":
                now = Edited(text, min(at + 1, end))
            case "I":
                now = Edited(text, motions.first_letter(text, at))
            case "A":
                now = Edited(text, end)
            case "o":
                now = Edited(f"{text[:end]}\n{text[end:]}", end + 1)
            case "O":
                now = Edited(f"{text[:start]}\n{text[start:]}", start)
            case _:
                pass
        return self._inserts(typed, now)

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


def _one_letter(text: str, at: int) -> bool:
    """Whether the word ends where the cursor is."""
    return at + 1 >= len(text) or motions.word_end(text, at, 1) != motions.word_end(text, at - 1, 1)


def _on_a_letter(edited: Edited) -> Edited:
    text, at = edited
    at = max(0, min(at, len(text)))
    return Edited(text, min(at, motions.last_letter(text, at)))


def _inserted(before: Edited, text: str, cursor: int) -> str:
    """What was typed between then and now, where it stands in one piece before the cursor."""
    grown = len(text) - len(before.text)
    piece = text[before.cursor : before.cursor + grown] if grown > 0 else ""
    same = text[: before.cursor] + text[before.cursor + max(grown, 0) :] == before.text
    return piece if same and before.cursor <= cursor else ""
