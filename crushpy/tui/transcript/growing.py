"""One line that grows: only its last row is broken again when more of it arrives."""

from collections.abc import Callable

from crushpy.tui.transcript.canvas import Canvas, Margin
from crushpy.tui.transcript.rows import Row
from crushpy.tui.transcript.wrap import Cut


class Growing:
    """The rows of a line of any length. `draw` adds to a canvas what `breaker` makes of the line."""

    def __init__(
        self, breaker: Callable[[str, int], list[Cut]], draw: Callable[[Canvas, str], None], margin: Margin
    ) -> None:
        self._breaker = breaker
        self._draw = draw
        self._margin = margin
        self._text = ""
        self._rows: list[Row] = []
        self._kept = 0
        """Where the last row begins."""

    def rows(self, text: str, canvas: Canvas) -> list[Row]:
        """The rows of `text`: the line as it is now."""
        if not self._rows or not text.startswith(self._text):
            self._rows, self._kept = [], 0
        rest = text[self._kept :]
        again = Canvas(canvas.palette, canvas.width)
        self._draw(again, rest)
        fresh = again.rows
        if self._kept:
            self._rows.pop()
            fresh[0] = _indented(fresh[0], self._margin)
        self._rows.extend(fresh)
        self._kept += self._breaker(rest, canvas.room(self._margin))[-1].start
        self._text = text
        return self._rows


def _indented(row: Row, margin: Margin) -> Row:
    """A first row, made to look like a later one."""
    segments = [*margin.rest, *row.segments[len(margin.first) :]]
    return Row(segments, row.fill, sum([len(segment.text) for segment in margin.rest]), row.end)
