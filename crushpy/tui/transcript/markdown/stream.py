"""Markdown that grows. What can no longer change is drawn once; only the rest is drawn again.

The text is cut into units: top-level blocks, and the items of a list and the lines of a fence one by one. A
unit is finished when complete lines show that another one has begun. All decisions depend on the text alone,
so it looks the same however it arrived.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.style import Style

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.markdown import block
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.util.markup import parse_blocks

if TYPE_CHECKING:
    from markdown_it.token import Token

PARSE_CHARS = 3_000
"""About how much is parsed at a time."""
LONG_LINE_CHARS = 4_000
"""A longer line is a unit of its own and shown as it came."""
LARGE_UNIT_CHARS = 8_000
"""A larger unit is shown as it came, up to the next empty line: while it grows it is drawn every frame."""
LARGE_TABLE_CHARS = 24_000
"""The same for a table, which can only be drawn as a whole."""
DRAW_CHARS = 20_000
"""How much of a very long line is drawn at a time."""
FEED_CHARS = 50_000
"""Characters of a text that are sanitized at once: for two megabytes that would take a tenth of a second."""
_FENCE_OPENING = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")


# --- units ----------------------------------------------------------------------------------------------


UnitKind = Literal["block", "item", "fence", "table"]
_KINDS: dict[str, UnitKind] = {"table_open": "table", "fence": "fence"}


class Unit(NamedTuple):
    """Lines that are drawn together. `start` and `end` count in the text that was given."""

    kind: UnitKind
    start: int
    end: int
    tokens: "Sequence[Token]"
    joined: bool = False
    """An item of the same list as the unit before."""

    def lines(self, lines: Sequence[str]) -> Sequence[str]:
        """Its own lines, without empty ones at the end."""
        end = self.end
        while end > self.start + 1 and is_blank(lines[end - 1]):
            end -= 1
        return lines[self.start : end]


def units_of(lines: Sequence[str], *, joined: bool) -> list[Unit]:
    """The units of `lines`. `joined`: they begin with an item of the list that came before."""
    starts: list[Unit] = []
    for inside in block.split_blocks(parse_blocks("\n".join([*lines, ""]))):
        if inside[0].type in ("bullet_list_open", "ordered_list_open"):
            for item in block.split_blocks(inside[1:-1]):
                starts.append(Unit("item", _line(item), 0, item, joined))
                joined = True
        else:
            starts.append(Unit(_KINDS.get(inside[0].type, "block"), _line(inside), 0, inside))
        joined = False
    ends = [*(unit.start for unit in starts), len(lines)][1:]
    return [unit._replace(end=end) for unit, end in zip(starts, ends, strict=False)]


def is_blank(line: str) -> bool:
    """Empty, as markdown sees it."""
    return not line.strip(" \t")


def _line(tokens: "Sequence[Token]") -> int:
    return tokens[0].map[0] if tokens[0].map else 0


# --- lines that are shown as they came -------------------------------------------------------------------


class Fence:
    code = True

    def __init__(self, opening: str, start: int) -> None:
        """`opening` is its first line, as the parser found it; `start` the row where its code begins."""
        found = _FENCE_OPENING.match(opening)
        assert found is not None
        marker = re.escape(found[2][0])
        self._closing = re.compile(rf" {{0,3}}{marker}{{{len(found[2])},}}[ \t]*")
        self._indent = len(found[1])
        self.language = block.language_of(found[3])
        self.start = start
        self.lines: list[str] = []

    def take(self, line: str) -> str | None:
        """A line of code, without the indentation of the fence; None if the line ends it."""
        if self._closing.fullmatch(line):
            return None
        spaces = len(line) - len(line.lstrip(" "))
        self.lines.append(line[min(spaces, self._indent) :])
        return self.lines[-1]


class LargeUnit:
    """A unit that is too large to be drawn as a whole. An empty line ends it, but none of the first lines."""

    code = False

    def __init__(self, lines: Sequence[str], most: int) -> None:
        """`lines` are those that are known; those within the first `most` characters cannot end it."""
        sizes = accumulate(len(line) + 1 for line in lines)
        self._left = next(number for number, size in enumerate(sizes, 1) if size > most)
        self.lines: list[str] = []

    def take(self, line: str) -> str | None:
        """The line; None if it ends the unit."""
        self._left -= 1
        return None if self._left < 0 and is_blank(line) else line


# --- the stream -----------------------------------------------------------------------------------------


class MarkdownStream:
    """Draws on `canvas`. `feed` it, then `draw` for each frame; `finish` it at the end.

    With `breaks` the lines of a paragraph stay lines.
    """

    def __init__(self, canvas: Canvas, margin: Margin, base: Style, *, breaks: bool = False) -> None:
        self.canvas = canvas
        self._writer = block.Writer(canvas, margin, base, breaks=breaks)
        self._margin = margin
        self._first_row = len(canvas.rows)
        self.sealed = len(canvas.rows)
        """How many rows of the canvas will not change any more (but for their colours)."""
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._at: int = 0
        self._joined = False
        self._verbatim: Fence | LargeUnit | None = None
        """The fence or the large unit whose lines are being drawn."""
        self._long = ""
        """What is left to draw of a very long line."""

    def feed(self, text: str) -> None:
        """More text. Cheap: nothing is drawn."""
        self._partial.append(text)
        if "\n" not in text:
            return
        # No escape sequence goes past a line break, so whole lines can be cleaned by themselves.
        whole, _, rest = "".join(self._partial).rpartition("\n")
        self._partial = [rest] if rest else []
        self._lines.extend(clean(whole).split("\n"))

    def settle(self, *, final: bool = False) -> Iterator[None]:
        """Draws finished units permanently, step by step."""
        self._drop_tail()
        while self._at < len(self._lines) or self._long:
            if self._long:
                self._long = self._write(self._long)
            elif self._verbatim is not None:
                self._verbatim_lines(len(self._lines), 200)
            elif not self._window(final):
                break
            self.sealed = len(self.canvas.rows)
            yield
        if self._at > 1_000:
            del self._lines[: self._at - 1]
            self._at = 1

    def draw_tail(self) -> None:
        """Draws what is not finished, for now."""
        self._drop_tail()
        pending = len(self.canvas.pending)
        partial = clean("".join(self._partial)).split("\n") if self._partial else []
        if self._verbatim is not None:
            self._write_all(partial)
        else:
            long = bool(partial) and len(partial[-1]) > LONG_LINE_CHARS
            lines = [*self._lines[self._at :], *(partial[:-1] if long else partial)]
            for unit in units_of(lines, joined=self._joined):
                self._draw(unit, lines, self._lines[self._at - 1] if self._at else "")
            if long:
                self._separate()
                self._write_all(partial[-1:])
        del self.canvas.pending[pending:]

    def draw(self) -> Iterator[None]:
        """Draws what arrived since the last call, step by step; only the unfinished end is drawn again."""
        yield from self.settle()
        self.draw_tail()

    def read(self, text: str) -> Iterator[None]:
        """Draws a complete text, step by step."""
        for start in range(0, len(text), FEED_CHARS):
            self.feed(text[start : start + FEED_CHARS])
            yield from self.settle()
        yield from self.finish()

    def finish(self) -> Iterator[None]:
        """Draws the rest, step by step: no more text will come."""
        if self._partial:
            self._lines.extend(clean("".join(self._partial)).split("\n"))
            self._partial = []
        yield from self.settle(final=True)
        self._end_verbatim()

    def _drop_tail(self) -> None:
        del self.canvas.rows[self.sealed :]

    def _window(self, final: bool) -> bool:
        """Draws the finished units of the next few lines. False if there is none yet."""
        if is_blank(self._lines[self._at]):
            self._at += 1
            return True
        if len(self._lines[self._at]) > LONG_LINE_CHARS:
            self._separate()
            self._long = self._lines[self._at]
            self._at += 1
            self._joined = False
            return True
        size = PARSE_CHARS
        while True:
            lines, closed = self._take(size, final)
            if self._draw_finished(lines, closed):
                return True
            if closed or self._at + len(lines) == len(self._lines):
                return False
            size *= 2

    def _take(self, size: int, final: bool) -> tuple[list[str], bool]:
        """Lines to parse, and whether their last unit ends with them."""
        taken = 0
        for index in range(self._at, len(self._lines)):
            length = len(self._lines[index])
            if length > LONG_LINE_CHARS:
                return self._lines[self._at : index], True
            if taken > size:
                return self._lines[self._at : index], False
            taken += length + 1
        return self._lines[self._at :], final

    def _draw_finished(self, lines: list[str], closed: bool) -> bool:
        begin = self._at
        units = units_of(lines, joined=self._joined)
        for index, unit in enumerate(units):
            finished = closed or index + 1 < len(units)
            if unit.kind == "fence":
                self._at = begin + unit.start + 1
                self._joined = False
                self._separate()
                self._verbatim = Fence(lines[unit.start], len(self.canvas.rows))
                if not self._verbatim_lines(begin + unit.end, len(lines)) or not finished:
                    return True
                continue
            most = LARGE_TABLE_CHARS if unit.kind == "table" else LARGE_UNIT_CHARS
            if _size(unit.lines(lines), finished) > most:
                self._at = begin + unit.start
                self._joined = False
                self._separate()
                self._verbatim = LargeUnit(unit.lines(lines), most)
                return True
            if not finished:
                self._at = begin + unit.start
                self._joined = unit.joined
                return index > 0
            self._draw(unit, lines, self._lines[begin - 1] if begin else "")
            self._at = begin + unit.end
        self._at = begin + len(lines)
        self._joined = False
        return True

    def _draw(self, unit: Unit, lines: Sequence[str], before: str) -> None:
        """Draws one unit, after an empty row if it needs one."""
        previous = lines[unit.start - 1] if unit.start else before
        if not unit.joined or is_blank(previous):
            self._separate()
        if unit.kind == "fence":
            fence = Fence(lines[unit.start], 0)
            for line in unit.lines(lines)[1:]:
                fence.take(line)
            self._writer.code(fence.lines, self._margin, fence.lines)
        else:
            self._writer.block(unit.tokens, lines)

    def _separate(self) -> None:
        if len(self.canvas.rows) > self._first_row:
            self._writer.separate()

    # --- lines that are shown as they came ---------------------------------------------------------------

    def _verbatim_lines(self, stop: int, most: int) -> bool:
        """Draws lines of a fence or a large unit, up to its end. True if that was reached."""
        verbatim = self._verbatim
        assert verbatim is not None
        for index in range(self._at, min(stop, self._at + most)):
            self._at = index + 1
            line = verbatim.take(self._lines[index])
            if line is None:
                self._end_verbatim()
                return True
            self._long = self._write(line, verbatim.lines if len(verbatim.lines) == 1 else None)
            if self._long:
                break
        return False

    def _end_verbatim(self) -> None:
        ended, self._verbatim = self._verbatim, None
        if isinstance(ended, Fence):
            margin = block.code_margin(self._margin, self.canvas.palette)
            block.ask_for_colours(self.canvas, ended.lines, ended.language, margin, ended.start)

    def _write(self, line: str, block: Sequence[str] | None = None) -> str:
        """Draws a line as it came; of a very long one the beginning. Returns the rest."""
        if self._verbatim is not None and self._verbatim.code:
            room = self.canvas.room(self._margin) - 1
            shown, after, rest = _cut(line, max(1, DRAW_CHARS // room) * room)
            self._writer.code([shown], self._margin, block)
        else:
            shown, after, rest = _cut(line, DRAW_CHARS, " ")
            self._writer.plain([shown])
        self.canvas.rows[-1].end = after
        return rest

    def _write_all(self, lines: Sequence[str]) -> None:
        for line in lines:
            rest = self._write(line)
            while rest:
                rest = self._write(rest)


def _cut(line: str, size: int, at: str = "") -> tuple[str, str, str]:
    """Cuts a line that is longer than `size`, if possible where it has `at`: before it, it, and behind it."""
    if len(line) <= size:
        return line, "\n", ""
    place = line.rfind(at, 1, size) if at else -1
    return (line[:place], at, line[place + 1 :]) if place > 0 else (line[:size], "", line[size:])


def _size(lines: Sequence[str], finished: bool) -> int:
    """How large a unit is for certain: the last line so far may turn out to be the head of a table."""
    size = sum(map(len, lines)) + len(lines)
    return size if finished else size - len(lines[-1]) - 1
