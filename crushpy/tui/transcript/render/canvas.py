"""Where an item is drawn: rows, and code that waits for its colours."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from crushpy.tui.transcript.render.highlight import Coloured, Highlighter
from crushpy.tui.transcript.render.row_store import RowStore
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.text_row import Span, TextRow, pieces
from crushpy.tui.transcript.render.wrap import cells, chop, wrap

LEAST = 8
"""Cells that are left for text however deep it is nested."""


PROSE = 100
"""Columns of prose: longer lines are hard to read, however wide the terminal is."""


class Pending(NamedTuple):
    """Rows of code that are drawn again when their colours are known: as many as before."""

    language: str
    codes: tuple[str, ...]
    start: int
    height: int
    redo: Callable[[Sequence[Coloured]], Sequence[TextRow]]


class Margin(NamedTuple):
    """What stands at the left of a block: before its first row, and before all others."""

    first: tuple[Segment, ...]
    rest: tuple[Segment, ...]
    copied: int = 0
    """How many characters at the end of `first` are copied with the text: a list's marker."""

    @property
    def width(self) -> int:
        return sum([cells(segment.text) for segment in self.rest])

    @property
    def later(self) -> "Margin":
        return Margin(self.rest, self.rest)

    def add(self, first: Segment, rest: Segment | None = None, *, copied: int = 0) -> "Margin":
        return Margin((*self.first, first), (*self.rest, rest or first), copied)


class Canvas:
    """Takes rows for one width and one palette."""

    def __init__(self, palette: Palette, width: int) -> None:
        self.palette = palette
        self.width = width
        self.rows = RowStore()
        self.pending: list[Pending] = []

    def room(self, margin: Margin) -> int:
        """Cells right of `margin`, the last column left out: it belongs to the scrollbar."""
        return max(LEAST, self.width - 1 - margin.width)

    def blank(self, margin: Margin, fill: Style) -> None:
        gutter = sum([len(segment.text) for segment in margin.rest])
        self.rows.append(TextRow(list(margin.rest), fill, gutter))

    def prose(self, lines: Sequence[Sequence[Span]], margin: Margin, fill: Style) -> None:
        """Lines of spans, each broken at spaces where it is too long."""
        for spans in lines:
            text = spans[0][0] if len(spans) == 1 else "".join([text for text, _ in spans])
            cuts = wrap(text, min(self.room(margin), max(LEAST, PROSE - margin.width)))
            self._put(list(zip(pieces(spans, cuts), [cut.after for cut in cuts], strict=True)), margin, fill)
            margin = margin.later

    def code(
        self, lines: Sequence[Sequence[Span]], margin: Margin, fill: Style, head: Style | None = None
    ) -> None:
        """Lines of spans, each broken wherever it is too long; `head` fills the first row."""
        start = len(self.rows)
        for spans in lines:
            text = spans[0][0] if len(spans) == 1 else "".join([text for text, _ in spans])
            cuts = chop(text, self.room(margin))
            self._put(list(zip(pieces(spans, cuts), [cut.after for cut in cuts], strict=True)), margin, fill)
            margin = margin.later
        if head is not None and len(self.rows) > start:
            self.rows[start].fill = head

    def _put(self, lines: list[tuple[list[Segment], str]], margin: Margin, fill: Style) -> None:
        gutter = sum([len(segment.text) for segment in margin.first]) - margin.copied
        lead = margin.first
        for segments, after in lines:
            self.rows.append(TextRow([*lead, *segments], fill, gutter, after))
            if lead is not margin.rest:
                lead = margin.rest
                gutter = sum([len(segment.text) for segment in lead])

    def ask_for_colours(self, highlighter: Highlighter, wanted: Callable[[], bool]) -> None:
        """Has the code that waits for its colours drawn again when they are known."""
        asked, self.pending = self.pending, []
        for pending in asked:
            results: list[Coloured] = []

            def done(
                coloured: Coloured | None, pending: Pending = pending, results: list[Coloured] = results
            ) -> None:
                if coloured is None or not wanted():
                    return
                results.append(coloured)
                if len(results) == len(pending.codes):
                    rows = pending.redo(results)
                    if len(rows) == pending.height:
                        self.rows[pending.start : pending.start + pending.height] = rows

            for code in pending.codes:
                highlighter.request(pending.language, code, done)
