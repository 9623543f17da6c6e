"""Which lines of the sheet are seen. Heights are estimates until an item is near; then all is put right.

Everything within a page of what is seen is measured, so scrolling moves over exact heights and nothing jumps.
"""

from abc import abstractmethod

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from crushpy.tui.transcript.entry_list import item_key
from crushpy.tui.transcript.finding import spans_of
from crushpy.tui.transcript.render.reply_part import ReplyPart
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.selection import name_line, span_in
from crushpy.tui.transcript.transcript_model import TranscriptModel

Marks = tuple[tuple[int, int] | None, tuple[tuple[int, int], ...], bool, str]
"""What lies over a row: selected characters, those that were sought, the cursor, a piece of the scrollbar."""
PLAIN: Marks = (None, (), False, "")
FOUND = Style(reverse=True)


class Scrolling(ScrollView, can_focus=True):
    """Turns sheet and position into lines."""

    following: var[bool] = var(True)
    """The end stays in view while more arrives. False once the user scrolls up; set it to return."""

    def __init__(self) -> None:
        super().__init__()
        self._sheet = TranscriptModel()
        self._cursor: int | None = None
        """The key of the item that keys act on."""
        self._anchor = (0, 0)
        """The item at the top and how many of its rows are above: what must not move when heights change."""
        self._seen = (0, 0)
        """The size that was laid out last."""
        self.sought = ""
        """What is highlighted wherever it stands, in lower case; empty: nothing."""
        self._stale = True
        self._strips: list[Strip] = []
        self._painted: list[Strip | None] = []
        """What stands on the screen, line by line; None where that is not certain."""
        self._places: list[int | None] = []
        """For each line what `select.name_line` calls it."""
        self._marked: dict[TextRow, tuple[Marks, Strip]] = {}
        self._told: int | None = None
        self._blank: TextRow | None = None

    @abstractmethod
    def current_palette(self) -> Palette: ...

    @property
    @abstractmethod
    def empty_style(self) -> Style: ...

    @abstractmethod
    def filtered(self, style: Style) -> Style: ...

    @property
    def allow_vertical_scroll(self) -> bool:
        return self._sheet.total > self.size.height

    @property
    def more_below(self) -> int:
        """How many lines are below what is seen."""
        return max(0, self._sheet.total - round(self.scroll_y) - self.size.height)

    # --- position ----------------------------------------------------------------------------------------

    def watch_following(self, following: bool) -> None:
        if following:
            self.show_changes()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The user, or the screen on their behalf, has scrolled."""
        if round(old_value) == round(new_value) or self._seen != tuple(self.size):
            return
        self._anchor = self._sheet.heights.find(round(new_value))
        self.set_reactive(Scrolling.following, round(new_value) >= self.max_scroll_y)
        self.show_changes()

    def show_changes(self) -> None:
        """Brings the lines up to date and repaints those that changed."""

    def lines_changed(self) -> None:
        """Other lines are seen than before, whoever asked for them."""

    def go_to(self, row: int) -> None:
        """Shows `row` of the sheet at the top, or as near to it as there is text."""
        self.scroll_to(y=max(0, min(row, self._sheet.total - self.size.height)), animate=False)

    def _lay_out(self) -> bool:
        """Measures what is near, and puts the position right. False where there is nothing to show it on."""
        size = self.size
        if not size or not self.is_attached:
            return False
        palette = self.current_palette()
        sheet = self._sheet
        for index in sheet.take_inserted():
            if index <= self._anchor[0]:
                self._anchor = (self._anchor[0] + 1, self._anchor[1])
        if not sheet.looks(palette, size.width):
            self._restyle(palette)
        self._seen = (size.width, size.height)
        if not self.following:
            self._measure_from_anchor(size.height)
        if self.following:
            self._measure_end(2 * size.height)
            self._set_position(sheet.total - size.height)
            self._anchor = sheet.heights.find(max(0, sheet.total - size.height))
        return True

    def _restyle(self, palette: Palette) -> None:
        index, offset = self._anchor
        known = index < len(self._sheet.heights)
        before = self._sheet.heights[index] if known else 0
        self._sheet.look(palette, self.size.width, self.size.height)
        self._marked.clear()
        self._blank = None
        if known and before:
            # The same part of the item at the top stays there.
            part = isinstance(self._sheet[index].item, ReplyPart)
            (self._sheet.all_rows if part else self._sheet.rows)(index)
            self._anchor = (index, offset * self._sheet.heights[index] // before)

    def _measure_from_anchor(self, height: int) -> None:
        sheet = self._sheet
        for _ in range(4):
            index, offset = self._anchor
            if index >= len(sheet.entries):
                self.set_reactive(Scrolling.following, True)
                return
            sheet.rows(index)
            offset = max(0, min(offset, sheet.heights[index] - 1))
            self._measure(index, 1, 2 * height + offset)
            self._measure(index, -1, height)
            top = sheet.heights.before(index) + offset
            last = max(0, sheet.total - height)
            if top <= last:
                self._anchor = (index, offset)
                self._set_position(top)
                return
            self._anchor = sheet.heights.find(last)
        self._set_position(sheet.total - height)

    def _measure_end(self, rows: int) -> None:
        last = len(self._sheet.entries) - 1
        if last >= 0:
            self._sheet.rows(last)
            self._measure(last, -1, rows - self._sheet.heights[last])

    def _measure(self, index: int, step: int, rows: int) -> None:
        """Makes the heights exact from `index` on in that direction, for that many rows."""
        if step > 0:
            rows -= self._sheet.heights[index]
        while rows > 0:
            following = self._sheet.neighbour(index, step)
            if following is None:
                return
            index = following
            self._sheet.rows(index)
            rows -= self._sheet.heights[index]

    def _set_position(self, top: int) -> None:
        """Takes over height and position without a layout: nothing else on the screen moves."""
        size = Size(self.size.width, self._sheet.total)
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
        top = max(0, top)
        if top != self.scroll_y:
            self.set_scroll(None, top)
        if top != self.scroll_target_y:
            self.set_reactive(Widget.scroll_target_y, top)  # pyright: ignore[reportArgumentType]

    # --- lines -------------------------------------------------------------------------------------------

    def _window(self) -> list[Strip]:
        """The lines that are seen, whole."""
        if not self._sheet.entries and not self.virtual_size.height:
            # Nothing was ever shown: the colours of all there could be need not be looked up yet.
            return self._nothing(self.size.width, self.size.height, self.empty_style)
        if self._stale or self._seen != tuple(self.size):
            if not self._lay_out():
                return []
            self._compose_lines()
            self._stale = False
            self.lines_changed()
        return self._strips

    def _nothing(self, width: int, height: int, style: Style) -> list[Strip]:
        """Empty lines; the same ones as long as they look the same."""
        known = self._strips[0] if len(self._strips) == height and height else None
        blank = Strip.blank(width, style)
        if known is None or known != blank:
            self._strips = [blank] * height
        return self._strips

    def _compose_lines(self) -> None:
        width, height = self.size
        sheet, palette = self._sheet, self.current_palette()
        top = round(self.scroll_y)
        bar = "" if self.following or sheet.total <= height else _scrollbar(top, sheet.total, height)
        selection = self.text_selection
        blank = self._blank = self._blank or TextRow([], palette.text)
        strips: list[Strip] = []
        places: list[int | None] = []
        index, offset = sheet.heights.find(top) if sheet.total else (None, 0)
        while index is not None and len(strips) < height:
            entry = sheet[index]
            space = sheet.space(index)
            under = self.has_focus and item_key(entry.key) == self._cursor
            rows = sheet.rows(index)
            for number in range(offset - space, len(rows)):
                if len(strips) == height:
                    break
                row = rows[number] if number >= 0 else blank
                name = name_line(entry.key, number)
                span = span_in(row, selection, name) if selection is not None and number >= 0 else None
                found = spans_of(row, self.sought) if self.sought else ()
                marks = (span, found, under and number >= 0, bar[len(strips)] if bar else "")
                strips.append(row.strip(width) if marks == PLAIN else self._mark(row, marks, width))
                places.append(name)
            index, offset = sheet.neighbour(index, 1), 0
        missing = height - len(strips)
        self._strips = strips + [blank.strip(width)] * missing
        self._places = places + [None] * missing

    def _selection_look(self) -> Style:
        style = self.filtered(self.selection_style)
        # A theme that only sets the background gives the text that colour too.
        return Style(bgcolor=style.bgcolor) if style.color == style.bgcolor else style

    def _mark(self, row: TextRow, marks: Marks, width: int) -> Strip:
        """A row with what lies over it. Remembered, so that an unchanged line is the same object."""
        known = self._marked.get(row)
        if known is not None and known[0] == marks and row is not self._blank:
            return known[1]
        span, found, under, bar = marks
        palette = self.current_palette()
        strip = row.strip(width)
        for one in found:
            if one != span:
                strip = _styled(strip, one, FOUND)
        if span is not None:
            strip = _styled(strip, span, self._selection_look())
        if under:
            strip = Strip.join([Strip([Segment("▌", palette["cursor"])], 1), strip.crop(1)])
        if bar:
            style = palette["thumb" if bar == "┃" else "track"]
            strip = Strip.join([strip.crop(0, width - 1), Strip([Segment(bar, style)], 1)])
        if len(self._marked) > 1_000:
            self._marked.clear()
        self._marked[row] = (marks, strip)
        return strip


def _styled(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """A strip with a style over some of its characters."""
    start, end = (strip.index_to_cell_position(at) for at in span)
    chosen = Segment.apply_style(strip.crop(start, end), post_style=style)
    return Strip.join([strip.crop(0, start), Strip(chosen, end - start), strip.crop(end)])


def _scrollbar(top: int, total: int, height: int) -> str:
    """A character for each line: where what is seen lies in the whole."""
    size = max(1, height * height // total)
    start = round((height - size) * top / max(1, total - height))
    return "│" * start + "┃" * size + "│" * (height - start - size)
