"""The transcript's widget: one virtual view that draws only what is seen, and follows the end as it grows.

What is shown is in `sheet.py`, where it is shown in `scrolling.py`, mouse and keys are in `pointing.py`.
It must have no border and no padding: it paints its lines itself.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import overload

from rich.segment import Segment
from rich.style import Style
from textual.await_remove import AwaitRemove
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from crushpy.tui.items import ItemAction, ReadingItem, TranscriptItem
from crushpy.tui.transcript.code_blocks import ShownBlock
from crushpy.tui.transcript.entry_list import item_key
from crushpy.tui.transcript.interaction import Interaction
from crushpy.tui.transcript.markdown.inline import load_parser
from crushpy.tui.transcript.render.styles import COMPONENTS, CSS, Palette
from crushpy.tui.transcript.selection import selected_text

FRAME_SECONDS = 0.05
"""Seconds between two frames while something is streamed."""
SLICE = 0.008
"""Seconds of work at a time on what is left to draw or to colour."""


class Transcript(Interaction):
    """Everything that was said and done. Keys of items are handed out by `add` and `set_items`, in order."""

    DEFAULT_CSS = CSS
    COMPONENT_CLASSES = COMPONENTS

    class Scrolled(Message):
        """How many lines are below what is seen has changed; 0 at the end."""

        def __init__(self, more_below: int) -> None:
            super().__init__()
            self.more_below = more_below

    class LinkClicked(Message):
        """A link in the text was clicked."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = href

    class ItemActivated(Message):
        """A key or a click asks for something to be done with an item."""

        def __init__(self, key: int, action: ItemAction) -> None:
            super().__init__()
            self.key = key
            self.action: ItemAction = action

    class CodeClicked(Message):
        """A row of a code block was clicked."""

        def __init__(self, key: int, block: ShownBlock) -> None:
            super().__init__()
            self.key = key
            self.block = block

    class FindAsked(Message):
        """Somebody wants to find words in it."""

    class FindEnded(Message):
        """Words were looked for that could not be found at once."""

        def __init__(self, found: bool) -> None:
            super().__init__()
            self.found = found

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self._palette: Palette | None = None
        self._palette_stale = True
        self._frame_due: asyncio.TimerHandle | None = None
        self._work_due: asyncio.TimerHandle | None = None
        self._last_frame = 0.0
        self._pause = FRAME_SECONDS

    # --- what is shown -----------------------------------------------------------------------------------

    def set_items(self, items: Sequence[TranscriptItem]) -> None:
        """Shows these items instead of all others, from the end."""
        self._sheet.reset(items)
        self._cursor = None
        self._anchor = (0, 0)
        self.following = True
        self.show_changes()

    def add(self, item: TranscriptItem) -> int:
        """Appends an item; gives its key."""
        if not self._sheet.entries:
            load_parser()
        key = self._sheet.add(item)
        self._request_frame()
        return key

    def replace(self, key: int, item: TranscriptItem) -> None:
        """Shows another item in this place. What the user opened or closed stays so."""
        index = self._sheet.index_of(key)
        if index is not None:
            self._sheet.replace(index, item)
            self._request_frame()

    @overload
    def remove(self) -> AwaitRemove: ...
    @overload
    def remove(self, key: int) -> None: ...
    def remove(self, key: int | None = None) -> AwaitRemove | None:
        """Takes out an item; without a key the whole widget, as every widget's `remove` does."""
        if key is None:
            return super().remove()
        index = self._sheet.index_of(key)
        if index is not None:
            self._sheet.remove(index)
            self._request_frame()
        return None

    def stream(self, key: int, text: str) -> None:
        """Appends to a reply, to thinking, or to a tool's output. Cheap; drawn at most every 50 ms."""
        index = self._sheet.index_of(key)
        if index is not None and text:
            self._sheet.stream(index, text)
            self._request_frame()

    def finish(self, key: int) -> None:
        """What was streamed is complete."""
        index = self._sheet.index_of(key)
        if index is not None:
            self._sheet.finish(index)
            self._request_frame()

    def activate(self, key: int, action: ItemAction) -> None:
        self.post_message(self.ItemActivated(key, action))

    def follow_link(self, href: str) -> None:
        self.post_message(self.LinkClicked(href))

    def copy_code(self, key: int, block: ShownBlock) -> None:
        self.post_message(self.CodeClicked(key, block))

    def ask_what_to_find(self) -> None:
        self.post_message(self.FindAsked())

    def tell_find_ended(self, found: bool) -> None:
        self.post_message(self.FindEnded(found))

    def item(self, key: int) -> TranscriptItem | None:
        """The item with that key as it is now; None where it is gone."""
        index = self._sheet.index_of(key)
        return None if index is None else self._sheet.whole(index)

    def keys(self) -> list[int]:
        """The keys of all items, in order."""
        entries = [entry for entry in self._sheet.entries if entry is not None]
        return [
            entry.key
            for entry in entries
            if entry.key == item_key(entry.key) and not isinstance(entry.item, ReadingItem)
        ]

    @property
    def drawn_items(self) -> int:
        """How many items keep their lines in memory."""
        return self._sheet.drawn_items

    @property
    def unpacked_rows(self) -> int:
        """How many lines are in memory as they are painted, seen or not."""
        return self._sheet.unpacked_rows

    def fold_all(self, folded: bool) -> None:
        """Closes everything that can be folded, or opens it."""
        for index, entry in enumerate(self._sheet.entries):
            if entry is not None:
                self._sheet.unfold(index, not folded)
        self.show_changes()

    def text_of_selection(self) -> str:
        """What is selected, as plain text; empty where nothing is."""
        return selected_text(self._sheet, self.text_selection) if self.text_selection else ""

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selected_text(self._sheet, selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._stale = True
        self.refresh()

    # --- frames ------------------------------------------------------------------------------------------

    @property
    def frame_due(self) -> bool:
        """Something arrived that is not on the screen yet."""
        return self._frame_due is not None

    @property
    def busy(self) -> bool:
        """A frame is due, or something is left to draw or to colour. False: nothing will change by itself."""
        return self._frame_due is not None or self._work_due is not None

    def _request_frame(self) -> None:
        """Shows what changed: at once after a rest, else when the next frame is due."""
        if not self.is_mounted:
            self._stale = True
        if self._frame_due is not None or not self.is_mounted:
            return  # until that frame what stands on the screen stands
        wait = self._last_frame + self._pause - time.monotonic()
        if wait <= 0:
            self._frame()
        else:
            self._frame_due = asyncio.get_running_loop().call_later(wait, self._frame)

    def _frame(self) -> None:
        self._frame_due = None
        if not self.is_attached:
            return
        began = time.monotonic()
        self._sheet.flush()
        self.show_changes()
        self._last_frame = time.monotonic()
        # A frame that takes long comes less often, so that keys are never kept waiting by the next one.
        self._pause = max(FRAME_SECONDS, 4 * (self._last_frame - began))

    def show_changes(self) -> None:
        """Brings the lines up to date and repaints those that changed."""
        before = self._painted
        self._stale = True
        after = self._window()
        changed = [y for y, strip in enumerate(after) if y >= len(before) or strip is not before[y]]
        self._painted = [*after]
        if changed:
            first, last = changed[0], changed[-1]
            self.refresh(Region(0, first, self.size.width, last - first + 1))

    def lines_changed(self) -> None:
        """Says how much is below, and has what is left drawn and coloured when there is time."""
        if self._work_due is None and self._sheet.busy:
            self._work_due = asyncio.get_running_loop().call_later(SLICE, self._work)
        below = 0 if self.following else self.more_below
        if below != self._told:
            self._told = below
            # Later, because a message made while the screen draws would count as the screen's own.
            self.call_later(self._tell_scrolled)

    def _tell_scrolled(self) -> None:
        self.post_message(self.Scrolled(self._told or 0))

    def _work(self) -> None:
        self._work_due = None
        if self.is_attached:
            self._sheet.work(time.perf_counter() + SLICE)
            self.show_changes()

    def on_unmount(self) -> None:
        for due in (self._frame_due, self._work_due):
            if due is not None:
                due.cancel()
        self._frame_due = self._work_due = None

    # --- drawing -----------------------------------------------------------------------------------------

    def notify_style_update(self) -> None:
        self._palette_stale = self._stale = True
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
        return self.filtered(self.get_component_rich_style(name, partial=partial))

    @property
    def empty_style(self) -> Style:
        return self._find_style("transcript--text", False)

    def filtered(self, style: Style) -> Style:
        """A style as the terminal is to get it: ANSI colours and missing colours are the app's decision."""
        background = self.background_colors[1]
        segments = [Segment(" ", style)]
        for one in self.get_line_filters():
            segments = one.apply(segments, background)
        return segments[0].style or style

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = self._window()[crop.y : crop.bottom]
        # Textual may paint these now, or only look at them for another widget's sake.
        for y, strip in enumerate(strips, crop.y):
            if y < len(self._painted) and self._painted[y] is not strip:
                self._painted[y] = None
        if crop.x or crop.right != self.size.width:
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        strips = self._window()
        if not 0 <= y < len(strips):
            return Strip.blank(self.size.width, self.current_palette().text)
        place = self._places[y] if self._places else None
        return strips[y] if place is None else strips[y].apply_offsets(0, place)
