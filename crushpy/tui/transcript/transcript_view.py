"""The visible lines of a transcript: which rows are in view, and what lies over them.

Everything within a page of the visible lines is measured, so scrolling moves over exact heights and nothing
jumps.
"""

from collections.abc import Callable
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip

from crushpy.tui.transcript.render.canvas import TextRow
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render_cache import RenderCache
from crushpy.tui.transcript.selection import match_spans, name_line, selected_span

FOUND = Style(reverse=True)


class Overlay(NamedTuple):
    """What lies over the rows: selected text, sought words and the cursor."""

    selection: Selection | None
    selection_style: Callable[[], Style]
    sought: str
    cursor: int | None
    """The key of the item at the cursor; None if no cursor is shown."""


class TranscriptView:
    """Turns a position into strips."""

    def __init__(self, cache: RenderCache) -> None:
        self._cache = cache
        self._model = cache.model
        self._anchor = (0, 0)
        """The item at the top and how many of its rows are above: what must not move when heights change."""
        self._anchor_height = 0
        """The height for which the anchor's offset holds, while the item is being drawn for another width."""
        self.size = Size(0, 0)
        """The size that was laid out last."""
        self.stale = True
        self.strips: list[Strip] = []
        self.line_names: list[int | None] = []
        """For each line its name, see `selection.name_line`."""

    # --- position ----------------------------------------------------------------------------------------

    def move_to(self, row: int) -> None:
        """Puts a row of the whole transcript at the top."""
        self._anchor, self._anchor_height = self._model.heights.find(max(0, row)), 0

    def show_row(self, index: int, row: int) -> None:
        """Puts a row of an item a third below the top, if there is enough above it."""
        third = self.size.height // 3
        if row < third:
            self.move_to(self._model.heights.before(index) - (third - row))
        else:
            # The offset, not a position: positions are estimates until what is near has been measured.
            self._anchor, self._anchor_height = (index, row + self._model.space(index) - third), 0

    def visible_entries(self, top: int) -> tuple[int, int]:
        """The first and the last visible entry."""
        heights = self._model.heights
        return heights.find(top)[0], heights.find(min(top + self.size.height, self._model.total) - 1)[0]

    def lay_out(
        self, size: Size, palette: Palette, *, following: bool, leaping: bool = False
    ) -> tuple[int, bool]:
        """Measures what is near; returns the row at the top and whether the end is followed: row by row, or
        half a page at a time, with blank rows below."""
        model, heights = self._model, self._model.heights
        before = heights[self._anchor[0]] if self._anchor[0] < len(model.entries) else 0
        if self._cache.set_style(palette, size.width):
            self._anchor_height = before  # the same part of the item at the top stays there
        self.size = size
        top = None if following else self._measure_from_anchor(size.height)
        if top is not None:
            return max(0, top), False
        last = len(model.entries) - 1
        if last >= 0:
            self._cache.rows(last)
            self._measure(last, -1, 2 * size.height - model.heights[last])
        top = max(0, model.total - size.height)
        if leaping and top:
            shown = heights.before(self._anchor[0]) + self._anchor[1]
            half = size.height // 2
            top = shown if top <= shown <= top + half else top + half
        self.move_to(top)
        return top, True

    def _measure_from_anchor(self, height: int) -> int | None:
        """Measures what is near the anchor; returns the row at the top, or None if nothing is left there."""
        model, heights = self._model, self._model.heights
        for _ in range(4):
            index, offset = self._anchor
            if index >= len(model.entries):
                return None
            self._cache.rows(index)
            heights = model.heights
            complete = self._cache.is_complete(index) or not heights[index]
            if complete and self._anchor_height:
                offset = offset * heights[index] // self._anchor_height
                self._anchor_height = 0
            shown = max(0, min(offset, heights[index] - 1))
            self._measure(index, 1, 2 * height + shown)
            self._measure(index, -1, height)
            top = heights.before(index) + shown
            last = max(0, model.total - height)
            if not complete:  # its last rows come later: the anchor waits for them
                return min(top, last)
            if top <= last:
                self._anchor = (index, shown)
                return top
            self._anchor = heights.find(last)
        return model.total - height

    def _measure(self, index: int, step: int, rows: int) -> None:
        """Makes the heights exact from `index` on in that direction, for that many rows."""
        if step > 0:
            rows -= self._model.heights[index]
        while rows > 0:
            following = self._model.neighbour(index, step)
            if following is None:
                return
            index = following
            self._cache.rows(index)
            rows -= self._model.heights[index]

    # --- lines -------------------------------------------------------------------------------------------

    def compose_lines(self, top: int, palette: Palette, overlay: Overlay) -> None:
        """Makes the strips for the size that was laid out last."""
        width, height = self.size
        model = self._model
        blank = TextRow([], palette.text)
        strips: list[Strip] = []
        names: list[int | None] = []
        index, offset = model.heights.find(top) if model.total else (None, 0)
        while index is not None and len(strips) < height:
            key = model[index].key
            rows = self._cache.rows(index)
            for number in range(offset - model.space(index), len(rows)):
                if len(strips) == height:
                    break
                row, name = rows[number] if number >= 0 else blank, name_line(key, number)
                strip = row.strip(width)
                if number >= 0:
                    strip = _mark(strip, row, name, palette, overlay, at_cursor=key == overlay.cursor)
                strips.append(strip)
                names.append(name)
            index, offset = model.neighbour(index, 1), 0
        missing = height - len(strips)
        self.strips = strips + [blank.strip(width)] * missing
        self.line_names = names + [None] * missing
        self.stale = False


def _mark(
    strip: Strip, row: TextRow, name: int, palette: Palette, overlay: Overlay, *, at_cursor: bool
) -> Strip:
    """The strip of a row with what lies over its text; the same strip if nothing does."""
    selected = selected_span(row, overlay.selection, name) if overlay.selection else None
    for span in match_spans(row, overlay.sought) if overlay.sought else ():
        if span != selected:
            strip = _style_span(strip, span, FOUND)
    if selected is not None:
        strip = _style_span(strip, selected, overlay.selection_style())
    return Strip.join([Strip([Segment("▌", palette["cursor"])], 1), strip.crop(1)]) if at_cursor else strip


def _style_span(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """A strip with a style over some of its characters."""
    start, end = (strip.index_to_cell_position(at) for at in span)
    chosen = Segment.apply_style(strip.crop(start, end), post_style=style)
    return Strip.join([strip.crop(0, start), Strip(chosen, end - start), strip.crop(end)])
