"""The transcript's widget: one virtual view that draws only what is visible, and follows the end as it grows.

`TranscriptModel` holds the items, `RenderCache` their rows, `TranscriptView` the visible lines, `Interaction`
the cursor and the search. The widget must have no border and no padding: it paints its lines itself.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import cast

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from crushpy.tui.items import BOUNDARY_ACTIONS, ItemAction, ReadingItem, TranscriptItem
from crushpy.tui.textual_adapter import app_of, frame_pause
from crushpy.tui.themes import filter_style
from crushpy.tui.transcript.interaction import Interaction, InteractionHost
from crushpy.tui.transcript.render.canvas import changed_regions
from crushpy.tui.transcript.render.styles import COMPONENTS, CSS, Palette
from crushpy.tui.transcript.render_cache import RenderCache
from crushpy.tui.transcript.selection import selected_text
from crushpy.tui.transcript.transcript_model import TranscriptModel
from crushpy.tui.transcript.transcript_view import Overlay, TranscriptView
from crushpy.util.markup import markdown_parser

FRAME_S, FLOOD_FRAME_S = 0.05, 0.1
"""Time between two frames while something is streamed; if more than `FLOOD_CHARS` came since the last one."""
FLOOD_CHARS = 1_000
LEAP_S = 0.3
"""If frames are further apart, the end is followed half a page at a time: scrolling draws all rows."""
WORK_SLICE_S = 0.008
"""Time spent at once on what is left to draw or to colour."""


class Transcript(InteractionHost):
    """A conversation. Keys of items are assigned by `add` and `set_items`, in order.

    Every action is reachable by key: while the transcript has focus the cursor shows what they act on.
    """

    DEFAULT_CSS = CSS
    COMPONENT_CLASSES = COMPONENTS
    BINDINGS = [
        Binding("up", "interact('step', -1)", "Previous", tooltip="the previous item"),
        Binding("down", "interact('step', 1)", "Next", tooltip="the next item"),
        Binding("enter,space", "interact('fold_cursor')", "Open or close", tooltip="open or close the item"),
        Binding("right", "interact('fold_cursor', True)", "Open", show=False),
        Binding("left", "interact('fold_cursor', False)", "Close", show=False),
        Binding("pageup", "interact('page', -1)", "A page up", show=False),
        Binding("pagedown", "interact('page', 1)", "A page down", show=False),
        Binding("home", "scroll_home", "To the beginning", show=False),
        Binding("end", "scroll_end", "To the end", show=False),
        Binding("c", "activate('copy')", "Copy", tooltip="copy the item"),
        Binding("p", "activate('pin')", "Pin", tooltip="pin the message: every compaction carries it"),
        Binding("f", "activate('fork')", "Fork here", tooltip="continue in a fork that ends here"),
        Binding("y", "activate('copy_block')", "Copy code", tooltip="copy a code block; again, the next"),
        Binding("s", "activate('open_task')", "Sub-agent", tooltip="read what the sub-agent of a task does"),
        Binding("o", "interact('open_link')", "Open link", tooltip="open its link; again, the next one"),
        Binding("slash", "screen.find", "Find", tooltip="find words in the transcript"),
        Binding("n", "interact('find_next', 1)", "Next match", tooltip="the next match, during a search"),
        Binding("N", "interact('find_next', -1)", "Previous match", tooltip="the previous match"),
        Binding("escape", "interact('end_find')", "End finding", show=False),
        *(
            Binding(key, f"activate('{action}')", name.capitalize())
            for key, (action, name, _) in BOUNDARY_ACTIONS.items()
        ),
    ]

    can_pin = False
    """Whether the messages shown belong to a conversation that can be pinned to."""

    @dataclass
    class Scrolled(Message):
        """The number of lines below the visible ones has changed; 0 at the end."""

        more_below: int

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self.model = TranscriptModel()
        self.cache = RenderCache(self.model)
        self.view = TranscriptView(self.cache)
        self.interaction = Interaction(self)
        self._palette: Palette | None = None
        self._palette_stale = True
        self._painted: list[Strip | None] = []
        """What is on the screen, line by line; None if that is not certain."""
        self._frame_timer: asyncio.TimerHandle | None = None
        self._work_timer: asyncio.TimerHandle | None = None
        self._last_frame = 0.0
        self._frame_pause = FRAME_S
        self._streamed_chars = 0
        """Since the last frame."""
        self._frame_wait = 0.0
        """The same as the terminal wants it."""
        self._announced_below: int | None = None

    # --- items -------------------------------------------------------------------------------------------

    def set_items(self, items: Sequence[TranscriptItem]) -> None:
        """Shows these items instead of all others, from the end."""
        self.cache.reset(items)
        had_cursor, self.interaction.cursor = self.interaction.cursor is not None, None
        self.view.move_to(0)
        self.following = True
        self.show_changes()
        if self.has_focus and had_cursor:  # the keys of an item that is gone are no longer offered
            self.interaction.pull_cursor()

    def add(self, item: TranscriptItem) -> int:
        """Appends an item; returns its key."""
        if not self.model.entries:
            # So that the first reply need not wait for the parser.
            Thread(target=markdown_parser, daemon=True).start()
        key = self.model.add(item)
        self._request_frame()
        return key

    def replace(self, key: int, item: TranscriptItem) -> None:
        """Shows another item in this place. What the user opened or closed stays so."""
        self._change(key, self.cache.replace, item)

    def remove_item(self, key: int) -> None:
        self._change(key, self.cache.remove)

    def open_branch(self) -> None:
        """Items that are added from now on are one branch deeper."""
        self.model.depth += 1

    def fold_branch(self) -> None:
        """Removes the items of the innermost branch; what follows belongs to its parent."""
        depth = self.model.depth = max(0, self.model.depth - 1)
        for index in range(len(self.model.entries) - 1, -1, -1):
            if self.model[index].depth <= depth:
                break
            self.cache.remove(index)
        self._request_frame()

    def stream(self, key: int, text: str) -> None:
        """Appends to a reply, to thinking, or to a tool's output. Cheap; drawn at most every 50 ms."""
        if text:
            self._streamed_chars += len(text)
            self._change(key, self.cache.stream, text)

    def finish(self, key: int, message_id: str = "") -> None:
        """Marks what was streamed as complete; it is stored as that message."""
        self._change(key, self.cache.finish, message_id)

    def _change(self, key: int, change: Callable[..., None], *arguments: object) -> None:
        """Changes an item, unless it was removed."""
        index = self.model.index_of(key)
        if index is not None:
            change(index, *arguments)
            self._request_frame()

    def item(self, key: int) -> TranscriptItem | None:
        """The item with that key as it is now; None if it was removed."""
        index = self.model.index_of(key)
        return None if index is None else self.model[index].current_item()

    def keys(self) -> list[int]:
        """The keys of all items, in order."""
        shown = (entry for entry in self.model.entries if not entry.removed)
        return [entry.key for entry in shown if not isinstance(entry.item, ReadingItem)]

    def fold_all(self, folded: bool) -> None:
        """Closes everything that can be folded, or opens it."""
        for index in range(len(self.model.entries)):
            self.cache.set_opened(index, not folded)
        self.show_changes()

    # --- selection ---------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selected_text(self.cache, selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.view.stale = True
        self.refresh()

    # --- position ----------------------------------------------------------------------------------------

    @property
    def allow_vertical_scroll(self) -> bool:
        return self.model.total > self.size.height

    def watch_following(self, following: bool) -> None:
        if following:
            self.show_changes()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The user, or the screen on their behalf, has scrolled."""
        if round(old_value) == round(new_value) or self.view.size != self.size:
            return
        self.view.move_to(round(new_value))
        self.set_following(round(new_value) >= self.max_scroll_y)
        self.show_changes()

    def _set_position(self, top: int) -> None:
        """Sets height and position without a layout: nothing else on the screen moves."""
        size = Size(self.size.width, self.model.total)
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
        if top != self.scroll_y:
            self.set_scroll(None, top)
        if top != self.scroll_target_y:
            self.set_reactive(Widget.scroll_target_y, top)  # pyright: ignore[reportArgumentType]
        if not self.following:
            bar = self.vertical_scrollbar
            bar.window_virtual_size, bar.window_size, bar.position = size.height, self.size.height, top

    # --- frames ------------------------------------------------------------------------------------------

    def _request_frame(self) -> None:
        """Shows what changed: at once after a pause, else when the next frame is due."""
        if not self.is_mounted:
            self.view.stale = True
        if self._frame_timer is not None or not self.is_mounted:
            return  # until that frame the lines stay as they are
        wait = self._last_frame + self._frame_pause - time.monotonic()
        if wait <= 0:
            self._show_frame()
        else:
            self._frame_timer = asyncio.get_running_loop().call_later(wait, self._show_frame)

    def _show_frame(self) -> None:
        self._frame_timer = None
        if not self.is_attached:
            return
        began = time.monotonic()
        self._frame_wait = frame_pause(app_of(self))
        if began - self._last_frame < self._frame_wait:
            self._frame_timer = asyncio.get_running_loop().call_later(FRAME_S, self._show_frame)
            return
        self.cache.flush()
        self.show_changes()
        self._last_frame = time.monotonic()
        # A frame that takes long comes less often, so that keys are never kept waiting by the next one.
        usual = FLOOD_FRAME_S if self._streamed_chars > FLOOD_CHARS else FRAME_S
        self._frame_pause, self._streamed_chars = max(usual, 4 * (self._last_frame - began)), 0
        if self._frame_wait > LEAP_S:  # once the terminal keeps up again, the last row is at the bottom
            self._frame_timer = asyncio.get_running_loop().call_later(self._frame_wait, self._show_frame)

    def show_changes(self) -> None:
        """Brings the lines up to date and repaints those that changed."""
        before = self._painted
        self.view.stale = True
        after = self._visible_strips()
        self._painted = [*after]
        if changed := changed_regions(before, after):
            self.refresh(*changed)

    def _lines_changed(self) -> None:
        """Announces how much is below, and schedules what is left to draw and to colour."""
        self._go_on_working()
        below = 0 if self.following else max(0, self.model.total - self.top_row - self.size.height)
        if below != self._announced_below:
            self._announced_below = below
            # Later, because a message made while the screen draws would count as the screen's own.
            self.call_later(lambda: self.post_message(self.Scrolled(self._announced_below or 0)))

    def _go_on_working(self) -> None:
        if self._work_timer is None and self.cache.busy:
            self._work_timer = asyncio.get_running_loop().call_later(WORK_SLICE_S, self._work)

    def _work(self) -> None:
        self._work_timer = None
        if self.is_attached:
            self.cache.work(time.perf_counter() + WORK_SLICE_S)
            self._go_on_working()
            self._request_frame()

    def on_unmount(self) -> None:
        for timer in (self._frame_timer, self._work_timer):
            if timer is not None:
                timer.cancel()
        self._frame_timer = self._work_timer = None

    # --- drawing -----------------------------------------------------------------------------------------

    def notify_style_update(self) -> None:
        self._palette_stale = self.view.stale = True
        super().notify_style_update()

    def current_palette(self) -> Palette:
        """The colours of the theme; the same object as long as they are the same."""
        if self._palette is None or self._palette_stale:
            palette = Palette(self._find_style)
            self._palette_stale = False
            if self._palette is None or palette != self._palette:
                self._palette = palette
        return self._palette

    def _find_style(self, name: str, partial: bool) -> Style:
        return filter_style(self, self.get_component_rich_style(name, partial=partial))

    def _selection_style(self) -> Style:
        style = filter_style(self, self.selection_style)
        # A theme that only sets the background gives the text the same colour.
        return Style(bgcolor=style.bgcolor) if style.color == style.bgcolor else style

    def _visible_strips(self) -> list[Strip]:
        """The visible lines in full width."""
        view, size = self.view, self.size
        if not self.model.entries and not self.virtual_size.height:
            # Nothing was ever shown: the palette need not be computed yet.
            blank = Strip.blank(size.width, self._find_style("transcript--text", False))
            view.strips = [blank] * size.height
        elif view.stale or view.size != size:
            if not size or not self.is_attached:
                return []
            palette = self.current_palette()
            cursor = self.interaction.cursor if self.has_focus else None
            self.cache.focus(cursor)
            top, following = view.lay_out(
                size, palette, following=self.following, leaping=self._frame_wait > LEAP_S
            )
            self.set_following(following)
            self._set_position(top)
            overlay = Overlay(self.text_selection, self._selection_style, self.interaction.sought, cursor)
            view.compose_lines(top, palette, overlay)
            self._lines_changed()
        return view.strips

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = self._visible_strips()[crop.y : crop.bottom]
        # Textual may paint these now, or only look at them because of another widget.
        for y, strip in enumerate(strips, crop.y):
            if y < len(self._painted) and self._painted[y] is not strip:
                self._painted[y] = None
        if crop.x or crop.right != self.size.width:
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        strips = self._visible_strips()
        if not 0 <= y < len(strips):
            return Strip.blank(self.size.width, self.current_palette().text)
        name = self.view.line_names[y] if self.view.line_names else None
        return strips[y] if name is None else strips[y].apply_offsets(0, name)

    # --- keys and mouse ----------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "interact" and parameters[0] in ("find_next", "end_find"):
            return bool(self.interaction.sought)
        if action != "activate":
            return True
        return self.interaction.can_do(cast(ItemAction, parameters[0]), can_pin=self.can_pin)

    def action_interact(self, method: str, *arguments: object) -> None:
        """Calls a method of the interaction."""
        getattr(self.interaction, method)(*arguments)

    def action_scroll_home(self) -> None:
        self.go_to(0)
        self.interaction.set_cursor(self.interaction.next_stop(-1, 1))

    def action_scroll_end(self) -> None:
        self.following = True
        self.interaction.set_cursor(self.interaction.next_stop(len(self.model.entries), -1))

    def action_activate(self, action: ItemAction) -> None:
        self.interaction.activate(action)

    def on_focus(self, event: events.Focus) -> None:
        self.interaction.enter(from_app_focus=event.from_app_focus)
        self.view.stale = True

    def on_blur(self) -> None:
        self.view.stale = True

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()  # the default for two clicks is to select everything
        self.interaction.click(event)
