"""A list of one-line rows that draws only the visible ones: ten thousand rows cost as much as ten."""

from collections.abc import Callable
from dataclasses import dataclass

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

CURSOR = "▌"

Draw = Callable[[int, int], Content]
"""Draws a row, by its number, for a width. Called for visible rows only; must not use disk or network."""


class RowList(ScrollView, can_focus=True):
    """Arrows or a click move the cursor, Enter or a click takes a row. `show` sets the rows."""

    COMPONENT_CLASSES = {"rows--highlighted"}
    DEFAULT_CSS = """
    RowList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    RowList > .rows--highlighted { background: $block-cursor-blurred-background; }
    RowList:ansi > .rows--highlighted { text-style: bold; }
    RowList:focus > .rows--highlighted {
        background: $block-cursor-background; color: $block-cursor-foreground;
    }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "First", show=False),
        Binding("end", "edge(1)", "Last", show=False),
        Binding("enter", "take", "Take", show=False),
    ]

    highlighted: reactive[int] = reactive(0)
    """The row at the cursor; meaningless if there are no rows."""

    @dataclass
    class RowMessage(Message):
        number: int

    class Highlighted(RowMessage):
        """The cursor moved to another row, or the rows changed."""

    class Taken(RowMessage):
        """A row was chosen by Enter or a click."""

    def __init__(self, *, one_click: bool = True) -> None:
        """Without `one_click` the first click only moves the cursor, so that keys can act on the row."""
        super().__init__()
        self._one_click = one_click
        self.count = 0
        self._draw: Draw = lambda _, __: Content("")

    def show(self, count: int, draw: Draw, highlighted: int = 0) -> None:
        """Replaces the rows; the cursor is on `highlighted`."""
        self.count, self._draw = count, draw
        self.virtual_size = Size(self.size.width, count)
        self.set_reactive(RowList.highlighted, max(0, min(highlighted, count - 1)))
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Highlighted(self.highlighted))

    def validate_highlighted(self, number: int) -> int:
        return max(0, min(number, self.count - 1))

    def watch_highlighted(self, old: int, new: int) -> None:
        self.refresh_line(old)
        self.refresh_line(new)
        self._scroll_to_cursor()
        self.post_message(self.Highlighted(new))

    def _scroll_to_cursor(self) -> None:
        """Scrolls as far as needed to show the cursor."""
        if self.size.height <= 0:
            return
        self.scroll_to_region(Region(0, self.highlighted, 1, 1), animate=False, force=True)
        if self.show_vertical_scrollbar:  # after a resize its thumb is where it was before
            self.vertical_scrollbar.position = self.scroll_offset.y

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, self.count)
        self.call_after_refresh(self._scroll_to_cursor)

    def render_line(self, y: int) -> Strip:
        number, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if not 0 <= number < self.count or width <= 0:
            return Strip.blank(self.size.width, self.rich_style)
        here = number == self.highlighted
        style = self.get_visual_style("rows--highlighted") if here else self.visual_style
        room = max(1, width - 2)
        # Without colours the highlight is invisible, so the row also has a mark.
        content = Content(CURSOR if here else " ") + self._draw(number, room).truncate(room, ellipsis=True)
        strips = Visual.to_strips(self, content.truncate(width), width, 1, style, pad=True)
        return strips[0] if strips else Strip.blank(width, style.rich_style)

    def action_move(self, rows: int) -> None:
        self.highlighted += rows

    def action_page(self, pages: int) -> None:
        self.highlighted += pages * max(1, self.size.height - 1)

    def action_edge(self, last: int) -> None:
        self.highlighted = self.count - 1 if last else 0

    def action_take(self) -> None:
        if self.count:
            self.post_message(self.Taken(self.highlighted))

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if 0 <= number < self.count:
            event.stop()
            moved = number != self.highlighted
            self.highlighted = number
            if self._one_click or not moved:
                self.action_take()
