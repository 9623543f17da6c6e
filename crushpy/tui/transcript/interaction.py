"""Keys and the mouse on a transcript: the cursor that moves from item to item, folding, search, links."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection

from crushpy.tui import items
from crushpy.tui.focus_controller import FocusVisitor
from crushpy.tui.notify import tell
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript import selection
from crushpy.tui.transcript.render.canvas import TextRow
from crushpy.tui.transcript.render.draw_item import is_foldable
from crushpy.tui.transcript.render_cache import RenderCache
from crushpy.tui.transcript.transcript_model import TranscriptModel
from crushpy.tui.transcript.transcript_view import TranscriptView

SEARCH_SLICE_S = 0.01
"""Time for which a search runs at a time."""
SEARCH_PAUSE_S = 0.001
"""Time between two slices, in which keys are handled."""
LINES_PER_STEP = 3
"""Lines that a key scrolls within an item taller than the screen."""


class InteractionHost(FocusVisitor, ScrollView):
    """The members of the transcript's widget that its interaction uses; `Transcript` implements them."""

    model: TranscriptModel
    cache: RenderCache
    view: TranscriptView

    following: var[bool] = var(True)
    """The end stays in view while more arrives. False once the user scrolls up; set it to return."""

    @dataclass
    class ItemActivated(Message, namespace="transcript"):
        """A key or a click asks for something to be done with an item, or with a text of it."""

        key: int
        action: items.ItemAction
        text: str = ""

    @property
    def top_row(self) -> int:
        """The row of the whole transcript that is at the top."""
        return round(self.scroll_y)

    def set_following(self, following: bool) -> None:
        """Sets `following` without showing anything. The scrollbar is there only away from the end."""
        self.set_reactive(InteractionHost.following, following)
        self.styles.scrollbar_visibility = "hidden" if following else "visible"

    def go_to(self, row: int) -> None:
        """Shows a row of the transcript at the top, or as near to it as there is text."""
        self.scroll_to(y=max(0, min(row, self.model.total - self.size.height)), animate=False)

    def show_changes(self) -> None:
        """Brings the lines up to date and repaints those that changed."""
        raise NotImplementedError


class Interaction:
    """The cursor and the search of one transcript widget."""

    def __init__(self, widget: InteractionHost) -> None:
        self._widget = widget
        self._cache = widget.cache
        self._model = widget.model
        self._view = widget.view
        self.cursor: int | None = None
        """The key of the item that keys act on."""
        self.sought = ""
        """The text to highlight, in lower case; empty if there is none."""
        self._last_taken: tuple[str, int | None, int] = ("", None, 0)
        """The link or code block that was taken last by key, and its item."""
        self._origin: selection.Match | None = None
        """Where the search was begun."""
        self._found: selection.Match | None = None
        self._opened_by_search: tuple[int, ...] = ()
        """Keys of what was closed before the search showed it."""
        self._search: selection.Search | None = None
        """The search that is running."""
        self._keeps_cursor = False
        """The next focus leaves the cursor where it is."""

    # --- folding -----------------------------------------------------------------------------------------

    def set_opened(self, index: int, opened: bool) -> None:
        """Opens or closes an item. Its first line stays where it is on the screen."""
        widget, model = self._widget, self._model
        if not is_foldable(model[index].item):
            return
        top, height = widget.top_row, widget.size.height
        visible = top <= model.heights.before(index) < top + height
        self._cache.set_opened(index, opened)
        if visible:
            widget.set_following(top >= model.total - height)
        widget.show_changes()

    def open_new(self, key: int) -> None:
        """Opens an item that has just come, so that its beginning is in view."""
        index = self._model.index_of(key)
        if index is not None:
            self._cache.set_opened(index, True)
            self._cache.rows(index)
            if self._widget.following and self._model.heights[index] >= self._widget.size.height:
                self._show_row(index, 0)
            self._widget.show_changes()

    def fold(self, key: int) -> bool:
        """Closes an item; False if it is closed or gone."""
        index = self._model.index_of(key)
        if index is None or not self._model[index].opened:
            return False
        self.set_opened(index, False)
        return True

    def fold_cursor(self, opened: bool | None = None) -> None:
        """Opens or closes the item at the cursor; without `opened` it changes to the other state."""
        index = self.cursor_index()
        if index is not None:
            self.set_opened(index, not self._model[index].opened if opened is None else opened)

    # --- going to an item --------------------------------------------------------------------------------

    def reveal(self, key: int, words: Sequence[str]) -> None:
        """Goes to an item and shows it opened, with the cursor on it and the first of the words selected."""
        index = self._model.index_of(key)
        if index is None:
            return
        self.set_opened(index, True)
        self._show_row(index, 0)
        self.take_focus()
        self.set_cursor(index)
        search = selection.find_first_word(self._cache, index, words)

        def show(match: selection.Match | None) -> None:
            if match is None:  # a line break divides each of the words
                self._select(selection.whole_item(key))
                return
            self._show_row(index, match.row)
            self._select_match(match)
            self._widget.show_changes()

        self._run_search(search, show)

    def _show_row(self, index: int, row: int) -> None:
        self._widget.set_following(False)
        self._view.show_row(index, row)

    def take_focus(self) -> None:
        """Takes the focus and leaves the cursor where it is."""
        self._keeps_cursor = not self._widget.has_focus
        self._widget.focus()
        self._widget.refresh_bindings()

    # --- search ------------------------------------------------------------------------------------------

    def find(self, words: str, then: Callable[[bool], None]) -> None:
        """Highlights the words, and goes to the first match from where the search was begun. Calls `then`, at
        once or later, with whether there is one."""
        self.sought = words.lower()
        index = self.cursor_index()
        self._origin = self._origin or selection.Match(index if index is not None else 0, -1, 0)
        self._found = self._search = None
        self._close_opened()
        self._widget.screen.clear_selection()
        if not self.sought:
            self._widget.show_changes()
            then(True)
            return
        search = selection.find_match(self._cache, self.sought, self._origin, 1)
        self._run_search(search, lambda match: then(self._go_to_match(match)))

    def find_next(self, step: int) -> None:
        start = self._found or self._origin
        if start is not None:
            self._run_search(selection.find_match(self._cache, self.sought, start, step), self._go_to_match)

    def end_find(self) -> None:
        """Ends the search; what it opened stays open."""
        if self.sought or self._origin is not None:
            self.sought, self._origin, self._found, self._search = "", None, None, None
            self._opened_by_search = ()
            self._widget.screen.clear_selection()
            self._widget.show_changes()
            self._widget.refresh_bindings()

    def _run_search(self, search: selection.Search, then: Callable[[selection.Match | None], object]) -> None:
        """Searches for a moment, and continues by itself unless another search begins."""
        self._search = search
        until = time.perf_counter() + SEARCH_SLICE_S
        try:
            next(search)
            while time.perf_counter() <= until:
                next(search)
        except StopIteration as end:
            self._search = None
            then(end.value)
            return
        self._widget.set_timer(
            SEARCH_PAUSE_S, lambda: self._run_search(search, then) if self._search is search else None
        )

    def _go_to_match(self, match: selection.Match | None) -> bool:
        """False if there is none."""
        if match is None:
            self._widget.show_changes()
            return False
        self._found = match
        key = self._model[match.item].key
        if key not in self._opened_by_search:
            self._close_opened()
        run = selection.collapsed_run(self._cache, match.item)
        if run is not None:
            self._opened_by_search += (self._model[run].key,)
            self.set_opened(run, True)
        if selection.has_folded_match(self._cache, match.item, self.sought):
            self._opened_by_search += (key,)
            self.set_opened(match.item, True)
        self._show_row(match.item, match.row)
        self.set_cursor(match.item)
        self._select_match(match)
        return True

    def _select_match(self, match: selection.Match) -> None:
        name = selection.name_line(self._model[match.item].key, match.row)
        self._select(Selection(Offset(match.start, name), Offset(match.start + match.length, name)))

    def _close_opened(self) -> None:
        keys, self._opened_by_search = self._opened_by_search, ()
        for key in reversed(keys):
            index = self._model.index_of(key)
            if index is not None:
                self.set_opened(index, False)

    # --- keys --------------------------------------------------------------------------------------------

    def activate(self, action: items.ItemAction) -> None:
        index = self._card_for(action)
        index = self.cursor_index() if index is None else index
        if index is None:
            return
        text = ""
        if action == "copy_block":
            blocks = [row.code for row in self._cache.all_rows(index) if row.code is not None]
            if not blocks:
                tell(self._widget, "There is no code block in this reply.", "warning")
                return
            action, text = "copy", "\n".join(blocks[self._take("code", len(blocks))])
        self._widget.post_message(self._widget.ItemActivated(self._model[index].key, action, text))

    def _card_for(self, action: items.ItemAction) -> int | None:
        """The card that a key acts on: the one at the cursor, else the last one in view. None if neither
        offers the action."""
        if not self._model.total:
            return None
        first, last = self._view.visible_entries(self._widget.top_row)
        at_cursor = [] if (index := self.cursor_index()) is None else [index]
        for index in (*at_cursor, *range(last, first - 1, -1)):
            item = self._model[index].item
            if isinstance(item, items.BoundaryItem) and action in item.actions:
                return index
        return None

    def open_link(self) -> None:
        """Opens the first link of the item at the cursor; called again, the next one."""
        index = self.cursor_index()
        links = [] if index is None else _links(self._cache.rows(index))
        if links:
            self._open(links[self._take("link", len(links))])

    def _open(self, href: str) -> None:
        if href.startswith(("https://", "http://")):
            app_of(self._widget).open_url(href)

    def _take(self, what: str, many: int) -> int:
        """The number of the first link or code block of the item; called again, of the next one."""
        *before, number = self._last_taken
        number = (number + 1) % many if before == [what, self.cursor] else 0
        self._last_taken = (what, self.cursor, number)
        return number

    def can_do(self, action: items.ItemAction, *, can_pin: bool) -> bool:
        """Whether an action makes sense for the item at the cursor."""
        index = self.cursor_index()
        item = None if index is None else self._model[index].item
        match action:
            case "copy":
                return True
            case "pin":
                own = isinstance(item, items.ToolItem) and item.name == items.OWN_COMMAND
                return can_pin and isinstance(item, items.PINNABLE) and not own
            case "copy_block":
                return isinstance(item, items.ReplyItem)
            case "open_task":
                return isinstance(item, items.ToolItem) and bool(item.session_id)
            case "fork":
                return item is not None and items.is_message(item)
            case _:
                return self._card_for(action) is not None

    def step(self, step: int) -> None:
        """Moves to the next item; first through the one at the cursor, if it is taller than the screen."""
        widget = self._widget
        height, top = widget.size.height, widget.top_row
        index = self.cursor_index()
        if index is None:
            self.pull_cursor()
            return
        first, last = self._extent(index)
        if (step < 0 and first < top) or (step > 0 and last > top + height):
            widget.go_to(top + step * min(LINES_PER_STEP, height))
            return
        following = self.next_stop(index, step)
        if following is None:
            widget.go_to(top + step)
            return
        self._cache.rows(following)
        first, last = self._extent(following)
        top = widget.top_row
        if first < top:
            widget.go_to(max(first, last - height))
        elif last > top + height:
            widget.go_to(min(first, last - height))
        self.set_cursor(following)

    def _extent(self, index: int) -> tuple[int, int]:
        """The first row of an item and the row after its last."""
        return self._model.heights.before(index), self._model.heights.before(index + 1)

    def page(self, step: int) -> None:
        self._widget.go_to(self._widget.top_row + step * max(1, self._widget.size.height - 2))
        self.pull_cursor()

    def cursor_index(self) -> int | None:
        return None if self.cursor is None else self._model.index_of(self.cursor)

    def set_cursor(self, index: int | None) -> None:
        self.cursor = None if index is None else self._model[index].key
        self._widget.show_changes()
        self._widget.refresh_bindings()

    def pull_cursor(self) -> None:
        """Brings the cursor into view: to the last visible item, unless it is in view."""
        if not self._model.total:
            return
        first, last = self._view.visible_entries(self._widget.top_row)
        index = self.cursor_index()
        if index is None or index > last:
            index = self.next_stop(last + 1, -1)
        self.set_cursor(max(first if index is None else index, first))

    def next_stop(self, index: int, step: int) -> int | None:
        """The next entry in that direction (1 or -1) where the cursor stops: not at the figures of a turn."""
        following = self._model.neighbour(index, step)
        while following is not None:
            item = self._model[following].item
            if not (isinstance(item, items.NoticeItem) and item.level == "turn"):
                break
            following = self._model.neighbour(following, step)
        return following

    def enter(self, *, from_app_focus: bool) -> None:
        """The widget got the focus. The cursor starts at the last visible item, unless it was set before."""
        keeps, self._keeps_cursor = self._keeps_cursor, False
        if not (keeps or from_app_focus):  # the app's focus: the user was in another window
            self.cursor = None
        self.pull_cursor()

    # --- mouse -------------------------------------------------------------------------------------------

    def click(self, event: events.Click) -> None:
        widget = self._widget
        names = self._view.line_names
        name = names[event.y] if 0 <= event.y < len(names) else None
        if name is None:
            return
        key, row = selection.parse_line_name(name)
        index = self._model.index_of(key)
        if index is None:
            return
        if event.chain > 1:
            word = selection.word_at(self._cache, name, event.x)
            self._select(word if event.chain == 2 else selection.whole_item(key))
            return
        if widget.text_selection is not None:
            return
        self.cursor = key
        meta, entry = event.style.meta, self._model[index]
        if "href" in meta:
            self._open(str(meta["href"]))
        elif "action" in meta:
            widget.post_message(widget.ItemActivated(key, meta["action"]))
        elif "copy_code" in meta:
            code = self._cache.rows(index)[row].code or ()
            widget.post_message(widget.ItemActivated(key, "copy", "\n".join(code)))
        elif row == 0 or not entry.opened or isinstance(entry.item, items.BoundaryItem):
            self.set_opened(index, not entry.opened)

    def _select(self, chosen: Selection | None) -> None:
        if chosen is not None:
            self._widget.screen.selections = {self._widget: chosen}


def _links(rows: Sequence[TextRow]) -> list[str]:
    found = [segment.style.meta.get("href") for row in rows for segment in row.segments if segment.style]
    return list(dict.fromkeys(str(href) for href in found if href))
