"""Markdown that grows. What can no longer change is drawn once; only the rest is drawn again.

The text is cut into units: top-level blocks, and the items of a list and the lines of a fence one by one. A
unit is finished when complete lines show that another one has begun. All decisions depend on the text alone,
so it looks the same however it arrived.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.style import Style

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.markdown import block
from crushpy.tui.transcript.render.canvas import Canvas, Margin, TextRow

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


class Unit(NamedTuple):
    """Lines that are drawn together. `start` and `end` count in the text that was given."""

    kind: Literal["block", "item", "fence", "table"]
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
    for inside in _blocks(block.parse_blocks("\n".join([*lines, ""])), 0):
        match inside[0].type:
            case "bullet_list_open" | "ordered_list_open":
                for item in _blocks(inside[1:-1], 1):
                    starts.append(Unit("item", _line(item), 0, item, joined))
                    joined = True
            case "table_open":
                starts.append(Unit("table", _line(inside), 0, inside))
            case "fence":
                starts.append(Unit("fence", _line(inside), 0, inside))
            case _:
                starts.append(Unit("block", _line(inside), 0, inside))
        joined = False
    ends = [*(unit.start for unit in starts), len(lines)][1:]
    return [unit._replace(end=end) for unit, end in zip(starts, ends, strict=False)]


def is_blank(line: str) -> bool:
    """Empty, as markdown sees it."""
    return not line.strip(" \t")


def _blocks(tokens: "Sequence[Token]", level: int) -> "Iterator[Sequence[Token]]":
    """The tokens of each block at `level`."""
    start = 0
    for index, token in enumerate(tokens):
        if token.level == level and token.nesting <= 0:
            yield tokens[start : index + 1]
            start = index + 1


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


# --- very long lines ------------------------------------------------------------------------------------


class GrowingLine:
    """The rows of one line, as it grows or as there is time to draw it: only the last one changes."""

    def __init__(self, canvas: Canvas, margin: Margin, base: Style) -> None:
        self._canvas = canvas
        self._margin = margin
        self._base = base
        self.forget()

    def forget(self) -> None:
        """The next line is another one."""
        self._drawn = ("", False)
        """The text that is drawn, and whether it is code."""
        self._rows: list[TextRow] = []
        self._last = 0
        """Where the last row begins."""

    def rows(self, line: str, *, code: bool, more: int = sys.maxsize) -> tuple[list[TextRow], bool]:
        """The rows of the line, of at most so many characters `more` than before, and whether it is all."""
        text = line.expandtabs(4) if code else line.replace("\t", "    ")
        if self._drawn[1] is not code or not text.startswith(self._drawn[0]):
            self.forget()
        shown = text[: len(self._drawn[0]) + more]
        palette = self._canvas.palette
        margin = block.code_margin(self._margin, palette) if code else self._margin
        style = palette.code if code else self._base
        again = Canvas(palette, self._canvas.width)
        draw = again.code if code else again.prose
        draw([[(shown[self._last :], style)]], margin.later if self._last else margin, style)
        self._rows[-1:] = again.rows
        self._last = len(shown) - len(again.rows[-1].text) + again.rows[-1].gutter
        self._drawn = (shown, code)
        return self._rows, shown == text


# --- the stream -----------------------------------------------------------------------------------------


class MarkdownStream:
    """Draws on `canvas`. `feed` it, then `draw` for each frame; `finish` it at the end.

    With `breaks` the lines of a paragraph stay lines.
    """

    def __init__(self, canvas: Canvas, margin: Margin, base: Style, *, breaks: bool = False) -> None:
        self.canvas = canvas
        self._writer = block.Writer(canvas, margin, base, breaks=breaks)
        self._margin = margin
        self._base = base
        self._first_row = len(canvas.rows)
        self.sealed = len(canvas.rows)
        """How many rows of the canvas will not change any more (but for their colours)."""
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._at: int = 0
        self._joined = False
        self._verbatim: Fence | LargeUnit | None = None
        """The fence or the large unit whose lines are being drawn."""
        self._growing = GrowingLine(canvas, margin, base)
        self._long: str | None = None
        """A very long line that is complete and being drawn."""

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
        while self._at < len(self._lines) or self._long is not None:
            if self._long is not None:
                if not self._draw_long(self._long):
                    yield
                    continue
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
            self._grow(partial)
        else:
            long = bool(partial) and len(partial[-1]) > LONG_LINE_CHARS
            lines = [*self._lines[self._at :], *(partial[:-1] if long else partial)]
            for unit in units_of(lines, joined=self._joined):
                self._draw(unit, lines, self._lines[self._at - 1] if self._at else "")
            if long:
                self._separate()
                self._grow(partial[-1:])
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
            if len(line) > LONG_LINE_CHARS:
                self._long = line
                break
            self._write(line, verbatim.lines if len(verbatim.lines) == 1 else None)
        return False

    def _end_verbatim(self) -> None:
        ended, self._verbatim = self._verbatim, None
        if isinstance(ended, Fence):
            margin = block.code_margin(self._margin, self.canvas.palette)
            block.ask_for_colours(self.canvas, ended.lines, ended.language, margin, ended.start)

    @property
    def _in_code(self) -> bool:
        return self._verbatim is not None and self._verbatim.code

    def _write(self, line: str, code: Sequence[str] | None = None) -> None:
        if self._in_code:
            self._writer.code([line], self._margin, code)
        else:
            self._writer.plain([line])

    def _grow(self, lines: Sequence[str]) -> None:
        """A line that may be very long and is not complete yet (before it, what a carriage return ended)."""
        for line in lines[:-1]:
            self._write(line)
        if lines:
            self.canvas.rows.extend(self._growing.rows(lines[-1], code=self._in_code)[0])

    def _draw_long(self, line: str) -> bool:
        """A very long line that is complete, a portion at a time. True when it is all there."""
        self._drop_tail()
        rows, complete = self._growing.rows(line, code=self._in_code, more=DRAW_CHARS)
        self.canvas.rows.extend(rows)
        if self._verbatim is not None and len(self._verbatim.lines) == 1:
            rows[0].code = self._verbatim.lines
        if complete:
            self._long = None
            self._growing.forget()
        return complete


def _size(lines: Sequence[str], finished: bool) -> int:
    """How large a unit is for certain: the last line so far may turn out to be the head of a table."""
    size = sum(map(len, lines)) + len(lines)
    return size if finished else size - len(lines[-1]) - 1
