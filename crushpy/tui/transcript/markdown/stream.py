"""Markdown that grows. What can no longer change is drawn once; only the rest is drawn again.

The text is cut into units: top-level blocks, and the items of a list, the rows of a long table and the lines
of a fence one by one. A unit is finished when complete lines show that another one has begun. All decisions
depend on the text alone, so it looks the same however it arrived.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.style import Style

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.markdown.block import (
    Writer,
    ask_for_colours,
    code_margin,
    plain_code,
)
from crushpy.tui.transcript.markdown.fences import Fence
from crushpy.tui.transcript.markdown.pipe_tables import Shape
from crushpy.tui.transcript.markdown.sections import LARGE_UNIT, LONG_LINE, WHOLE, Opening
from crushpy.tui.transcript.markdown.units import Unit, is_blank, units_of
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.growing_lines import GrowingLine

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 3_000
"""About how much is parsed at a time."""


class MarkdownStream:
    """Draws on `canvas`. `feed` it, then `settle` and `draw_tail` for each frame; `finish` it at the end.

    With `breaks` the lines of a paragraph stay lines. `opening` says what the text goes on with, where it is
    a section of a longer one.
    """

    def __init__(
        self, canvas: Canvas, margin: Margin, base: Style, opening: Opening = WHOLE, *, breaks: bool = False
    ) -> None:
        self.canvas = canvas
        self._writer = Writer(canvas, margin, base, breaks=breaks)
        self._margin = margin
        self._base = base
        self._first_row = len(canvas.rows)
        self.sealed = len(canvas.rows)
        """How many rows of the canvas will not change any more (but for their colours)."""
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._at: int = 0
        self._joined = opening.item
        self._table = self._head_of(opening.table) if opening.table else None
        self._fence = Fence(opening.fence, len(canvas.rows), goes_on=True) if opening.fence else None
        self._plain = int(opening.plain)
        """In a unit that is too large: how many lines come before an empty one can end it, plus one."""
        self._growing = GrowingLine(canvas, margin, base)
        self._long: tuple[str, bool] | None = None
        """A very long line that is complete and being drawn, and whether it is code."""
        self._rest_of_line = opening.line
        """The first line goes on with one that began before."""

    def _head_of(self, lines: "Sequence[str]") -> tuple[list[str], Shape | None]:
        """The first two lines of a table, and its columns."""
        [unit, *_] = units_of(lines, joined=False, header=None)
        elsewhere = Writer(Canvas(self.canvas.palette, self.canvas.width), self._margin, self._base)
        return list(lines[:2]), elsewhere.table(unit.tokens, lines)

    def replace_rest(self, text: str) -> None:
        """Feeds `text` instead of what came after the last line break."""
        self._partial = []
        if text:
            self.feed(text)

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
        """Draws for good what is finished, step by step."""
        self._drop_tail()
        if self._rest_of_line and self._lines:
            self._rest_of_line = False
            self._long = (self._lines[0], self._fence is not None)
            self._at = 1
        while self._at < len(self._lines) or self._long is not None:
            if self._long is not None:
                if not self._draw_long(*self._long):
                    yield
                    continue
            elif self._fence is not None:
                self._code_lines(len(self._lines), 200)
            elif self._plain:
                self._plain_lines()
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
        if self._fence is not None:
            self._grow(partial, code=True)
        elif self._plain or self._rest_of_line:
            self._grow(partial, code=False)
        else:
            long = bool(partial) and len(partial[-1]) > LONG_LINE
            lines = [*self._lines[self._at :], *(partial[:-1] if long else partial)]
            joined, table = self._joined, self._table
            for unit in units_of(lines, joined=joined, header=table[0] if table else None):
                self._draw(unit, lines, self._lines[self._at - 1] if self._at else "")
            self._joined, self._table = joined, table
            if long:
                self._separate()
                self._grow(partial[-1:], code=False)
        del self.canvas.pending[pending:]

    def finish(self, *, broken: bool = False) -> Iterator[None]:
        """No more text will come: all of it is finished. `broken`: it ends inside a line."""
        if self._partial:
            self._lines.extend(clean("".join(self._partial)).split("\n"))
            self._partial = []
        yield from self.settle(final=True)
        if self._fence is not None:
            self._close_fence(self._fence)
        if broken and len(self.canvas.rows) > self._first_row:
            self.canvas.rows[-1].end = ""

    def _drop_tail(self) -> None:
        del self.canvas.rows[self.sealed :]

    def _window(self, final: bool) -> bool:
        """Draws the finished units of the next few lines. False where there is none yet."""
        if is_blank(self._lines[self._at]):
            self._at += 1
            return True
        if len(self._lines[self._at]) > LONG_LINE:
            self._separate()
            self._long = (self._lines[self._at], False)
            self._at += 1
            self._joined, self._table = False, None
            return True
        size = WINDOW
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
            if length > LONG_LINE:
                return self._lines[self._at : index], True
            if taken > size:
                return self._lines[self._at : index], False
            taken += length + 1
        return self._lines[self._at :], final

    def _draw_finished(self, lines: list[str], closed: bool) -> bool:
        begin = self._at
        units = units_of(lines, joined=self._joined, header=self._table[0] if self._table else None)
        for index, unit in enumerate(units):
            finished = closed or index + 1 < len(units)
            if unit.kind == "fence":
                self._at = begin + unit.start
                self._open_fence(lines[unit.start])
                self._code_lines(begin + unit.end, len(lines))
                if self._fence is not None or not finished:
                    return True
                continue
            if unit.kind != "rows" and _size(unit.lines(lines), finished) > LARGE_UNIT:
                self._at = begin + unit.start
                self._open_plain(unit.lines(lines))
                return True
            if not finished:
                self._at = begin + unit.start
                self._joined = unit.joined
                if not unit.goes_on:
                    self._table = None
                return index > 0
            self._draw(unit, lines, self._lines[begin - 1] if begin else "")
            self._at = begin + unit.end
        self._at = begin + len(lines)
        self._joined, self._table = False, None
        return True

    def _draw(self, unit: Unit, lines: "Sequence[str]", before: str) -> None:
        """One unit, with an empty row before it where there has to be one."""
        previous = lines[unit.start - 1] if unit.start else before
        if unit.kind == "rows":
            shape = self._table[1] if self._table else None
            if shape is None:
                self._writer.plain([line.strip() for line in unit.lines(lines)])
            else:
                self._writer.table(unit.tokens, unit.lines(lines), shape)
            return
        if not unit.joined or is_blank(previous):
            self._separate()
        match unit.kind:
            case "table":
                shape = self._writer.table(unit.tokens, unit.lines(lines))
                self._table = (list(lines[unit.start : unit.start + 2]), shape)
            case "fence":
                fence = Fence(lines[unit.start], 0)
                for line in unit.lines(lines)[1:]:
                    fence.take(line)
                self._code(fence.lines, begins=True)
            case _:
                self._writer.block(unit.tokens, lines)

    def _separate(self) -> None:
        if len(self.canvas.rows) > self._first_row:
            self._writer.separate()

    # --- fences ------------------------------------------------------------------------------------------

    def _open_fence(self, line: str) -> None:
        self._separate()
        self._fence = Fence(line, len(self.canvas.rows))
        self._at += 1
        self._joined, self._table = False, None

    def _code_lines(self, stop: int, most: int) -> None:
        """Draws lines of the open fence, up to its end."""
        fence = self._fence
        assert fence is not None
        for index in range(self._at, min(stop, self._at + most)):
            self._at = index + 1
            if not fence.take(self._lines[index]):
                self._close_fence(fence)
                return
            if len(fence.lines[-1]) > LONG_LINE:
                self._long = (fence.lines[-1], True)
                return
            self._code(fence.lines[-1:], begins=len(fence.lines) == 1 and not fence.goes_on)

    def _close_fence(self, fence: Fence) -> None:
        self._fence = None
        margin = code_margin(self._margin, self.canvas.palette)
        ask_for_colours(self.canvas, fence.lines, fence.language, margin, fence.start)

    def _code(self, lines: list[str], *, begins: bool = False) -> None:
        palette = self.canvas.palette
        shown = [plain_code(line, palette) for line in lines]
        head = palette.fence_head if begins else None
        self.canvas.code(shown, code_margin(self._margin, palette), palette.fence, head)

    # --- what is shown as it came ------------------------------------------------------------------------

    def _open_plain(self, extent: "Sequence[str]") -> None:
        self._separate()
        self._joined, self._table = False, None
        size = 0
        for self._plain, line in enumerate(extent, 2):
            size += len(line) + 1
            if size > LARGE_UNIT:
                return

    def _plain_lines(self) -> None:
        for index in range(self._at, min(len(self._lines), self._at + 200)):
            self._at = index + 1
            line = self._lines[index]
            if self._plain == 1 and is_blank(line):
                self._plain = 0
                return
            self._plain = max(1, self._plain - 1)
            if len(line) > LONG_LINE:
                self._long = (line, False)
                return
            self._writer.plain([line])

    def _grow(self, lines: "Sequence[str]", *, code: bool) -> None:
        """A line that may be very long and is not complete yet (before it, what a carriage return ended)."""
        for line in lines[:-1]:
            self._code([line]) if code else self._writer.plain([line])
        if lines:
            self.canvas.rows.extend(self._growing.rows(lines[-1], code=code))

    def _draw_long(self, line: str, code: bool) -> bool:
        """A very long line that is complete, a portion at a time. True when it is all there."""
        self._drop_tail()
        rows, complete = self._growing.portion(line, code=code)
        self.canvas.rows.extend(rows)
        if complete:
            self._long = None
            self._growing.forget()
        return complete


def _size(lines: "Sequence[str]", finished: bool) -> int:
    """How large a unit is for certain: the last line so far may turn out to be the head of a table."""
    size = sum(map(len, lines)) + len(lines)
    return size if finished else size - len(lines[-1]) - 1
