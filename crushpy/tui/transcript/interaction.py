"""Keys and the mouse on the transcript: the cursor that walks from item to item, folding, links."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.selection import Selection

from crushpy.tui.focus_controller import Visited
from crushpy.tui.items import (
    BOUNDARY_ACTIONS,
    OWN_COMMAND,
    PINNABLE,
    BoundaryItem,
    ItemAction,
    ReplyItem,
    ToolItem,
    is_message,
)
from crushpy.tui.transcript.code_blocks import ShownBlock, block_in
from crushpy.tui.transcript.entry_list import item_key
from crushpy.tui.transcript.finding import Match, Search, find_match, hiding_run, stands_in_fold
from crushpy.tui.transcript.render.draw_item import is_foldable
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.scrolling import Scrolling
from crushpy.tui.transcript.selection import name_line, named_line, whole_item, word_at, words_in

PATIENCE = 0.01
"""Seconds for which words are looked for at a time."""
SHORTLY = 0.001
"""Seconds between two of these times, in which keys are heard."""


class Interaction(Visited, Scrolling):
    """Every action is reachable by key: while the transcript has focus the cursor shows what they act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Previous", tooltip="the item before"),
        Binding("down", "cursor_down", "Next", tooltip="the next item"),
        Binding("enter,space", "toggle_item", "Open or close", tooltip="open or close the item"),
        Binding("right", "fold(True)", "Open", show=False),
        Binding("left", "fold(False)", "Close", show=False),
        Binding("pageup", "page_up", "A page up", show=False),
        Binding("pagedown", "page_down", "A page down", show=False),
        Binding("home", "scroll_home", "To the beginning", show=False),
        Binding("end", "scroll_end", "To the end", show=False),
        Binding("c", "activate('copy')", "Copy", tooltip="copy the item"),
        Binding("p", "activate('pin')", "Pin", tooltip="pin the message: every fresh start carries it"),
        Binding("b", "activate('fork')", "Fork here", tooltip="go on in a branch that ends at this message"),
        Binding("y", "activate('copy_block')", "Copy code", tooltip="copy a code block; again, the next"),
        Binding("s", "activate('open_task')", "Sub-agent", tooltip="read what the sub-agent of a task does"),
        Binding("o", "open_link", "Open link", tooltip="open its link; again, the next one"),
        Binding("slash", "find", "Find", tooltip="find words in the transcript"),
        Binding("n", "find_next(1)", "Next match", tooltip="the next match, while something is sought"),
        Binding("N", "find_next(-1)", "Match before", tooltip="the match before it"),
        Binding("escape", "end_find", "End finding", show=False),
        *(
            Binding(key, f"activate('{action}')", name.capitalize())
            for key, (action, name) in BOUNDARY_ACTIONS.items()
        ),
    ]

    can_pin = False
    """True where the messages shown are those of a conversation that can be pinned to."""

    def __init__(self) -> None:
        super().__init__()
        self._last_link: tuple[int | None, int] = (None, 0)
        """The item and the link in it that was opened last by key."""
        self._over_bar = False
        self._dragging = False
        self._origin: Match | None = None
        """Where finding was begun."""
        self._opened_to_show: int | None = None
        self._run_to_show: int | None = None
        """The item that was closed before finding led to it."""
        self._found: Match | None = None
        self._search: Search | None = None
        """What looks for the words that are sought, as long as it does."""
        self._led = False
        """The focus comes with `reveal`, which has set the cursor."""

    @abstractmethod
    def activate(self, key: int, action: ItemAction) -> None: ...

    @abstractmethod
    def follow_link(self, href: str) -> None: ...

    @abstractmethod
    def copy_code(self, key: int, block: ShownBlock) -> None: ...

    # --- folding -----------------------------------------------------------------------------------------

    def toggle(self, key: int) -> None:
        """Opens or closes an item. Its first line stays where it is on the screen."""
        index = self._sheet.index_of(key)
        if index is not None:
            self._unfold(index, not self._sheet[index].opened)

    def _unfold(self, index: int, unfolded: bool) -> None:
        sheet = self._sheet
        if not is_foldable(sheet[index].item):
            return
        top, height = round(self.scroll_y), self.size.height
        seen = top <= sheet.heights.before(index) < top + height
        sheet.unfold(index, unfolded)
        if seen:
            self.set_reactive(Scrolling.following, top >= sheet.total - height)
        self.show_changes()

    def reveal(self, key: int, words: Sequence[str] = ()) -> None:
        """Goes to an item and shows it opened, with the cursor on it and the words in it highlighted."""
        index = self._sheet.index_of(key)
        if index is None:
            return
        self.set_reactive(Scrolling.following, False)
        self._unfold(index, True)
        chosen = words_in(self._sheet, key, words)
        part, row = (
            named_line(chosen.start.y) if chosen is not None and chosen.start is not None else (key, 0)
        )
        self._show_row(self._sheet.place_of(part), row)
        self._led = not self.has_focus
        self.focus()
        self._set_cursor(index)
        self._select(chosen)

    def _show_row(self, index: int, row: int) -> None:
        """Has a row of an item stand a third below the top, where there is enough above it."""
        self.set_reactive(Scrolling.following, False)
        # What is near is measured first: before that, heights are estimates.
        self._anchor = (index, max(0, row + self._sheet.space(index) - self.size.height // 3))
        if row < self.size.height // 3:
            above = self._sheet.heights.before(index) - (self.size.height // 3 - row)
            self._anchor = self._sheet.heights.find(max(0, above))

    # --- finding -----------------------------------------------------------------------------------------

    @abstractmethod
    def ask_what_to_find(self) -> None: ...

    @abstractmethod
    def tell_find_ended(self, found: bool) -> None: ...

    def find(self, words: str) -> bool | None:
        """Highlights the words wherever they stand, and goes to the first place from where it was begun.

        None where that takes longer: `FindEnded` tells how it ends.
        """
        self.sought = words.lower()
        index = self._cursor_index()
        self._origin = self._origin or Match(index if index is not None else 0, -1, 0)
        self._found = None
        self._close_what_finding_opened()
        self.screen.clear_selection()
        self._search = find_match(self._sheet, self.sought, self._origin, 1) if self.sought else None
        return self._look_on() if self.sought else self._show_all()

    def _show_all(self) -> bool:
        self.show_changes()
        return True

    def _look_on(self) -> bool | None:
        """Looks for what is sought for a moment. None: it goes on by itself, unless something else is."""
        search, until = self._search, time.perf_counter() + PATIENCE
        try:
            while search is not None:
                next(search)
                if time.perf_counter() > until:
                    self.set_timer(SHORTLY, lambda: self._look_later(search))
                    return None
        except StopIteration as end:
            self._search = None
            if end.value is not None:
                self._go_to_match(end.value)
                return True
            self.show_changes()
        return False

    def _look_later(self, search: Search) -> None:
        if self._search is search and (found := self._look_on()) is not None:
            self.tell_find_ended(found)

    def _go_to_match(self, match: Match) -> None:
        self._found = match
        if self._sheet[match.item].key != self._opened_to_show:
            self._close_what_finding_opened()
        run = hiding_run(self._sheet, match.item)
        if run is not None:
            self._run_to_show = self._sheet[run].key
            self._unfold(run, True)
        if stands_in_fold(self._sheet, match.item, self.sought):
            self._opened_to_show = self._sheet[match.item].key
            self._unfold(match.item, True)
        self._show_row(match.item, match.row)
        self._set_cursor(match.item)
        name = name_line(self._sheet[match.item].key, match.row)
        self._select(Selection(Offset(match.start, name), Offset(match.start + len(self.sought), name)))

    def _close_what_finding_opened(self) -> None:
        opened = self._opened_to_show, self._run_to_show
        self._opened_to_show = self._run_to_show = None
        for key in opened:
            index = self._sheet.index_of(key) if key is not None else None
            if index is not None:
                self._unfold(index, False)

    def visit(self) -> None:
        """Takes the focus and leaves the cursor where it is."""
        self._led = not self.has_focus
        self.focus()
        self.refresh_bindings()

    def end_find(self) -> None:
        """Nothing is sought any more."""
        if self.sought or self._origin is not None:
            self.sought, self._origin, self._found, self._search = "", None, None, None
            self._opened_to_show = self._run_to_show = None  # what one looks at stays open
            self.screen.clear_selection()
            self.show_changes()
            self.refresh_bindings()

    def action_find(self) -> None:
        self.end_find()
        self.ask_what_to_find()

    def action_find_next(self, step: int) -> None:
        start = self._found or self._origin
        if start is not None:
            self._search = find_match(self._sheet, self.sought, start, step)
            self._look_on()

    def action_end_find(self) -> None:
        self.end_find()

    # --- keys --------------------------------------------------------------------------------------------

    def action_page_up(self) -> None:
        self.go_to(round(self.scroll_y) - max(1, self.size.height - 2))
        self._pull_cursor()

    def action_page_down(self) -> None:
        self.go_to(round(self.scroll_y) + max(1, self.size.height - 2))
        self._pull_cursor()

    def action_scroll_home(self) -> None:
        self.go_to(0)
        self._set_cursor(self._sheet.neighbour(-1, 1))

    def action_scroll_end(self) -> None:
        self.following = True
        self._set_cursor(self._sheet.neighbour(len(self._sheet.entries), -1))

    def action_cursor_up(self) -> None:
        self._step(-1)

    def action_cursor_down(self) -> None:
        self._step(1)

    def action_fold(self, unfolded: bool) -> None:
        index = self._cursor_index()
        if index is not None:
            self._unfold(index, unfolded)

    def action_toggle_item(self) -> None:
        index = self._cursor_index()
        if index is not None:
            self._unfold(index, not self._sheet[index].opened)

    def action_activate(self, action: ItemAction) -> None:
        index = self._cursor_index()
        if index is not None:
            self.activate(self._sheet[index].key, action)

    def action_open_link(self) -> None:
        """The first link of the item at the cursor; pressed again, the next one."""
        index = self._cursor_index()
        if index is None:
            return
        first, last = self._sheet.extent(index)
        seen = self._seen_entries()
        # Of a long reply only what is near is drawn: the links of that.
        near = range(max(first, seen[0]), min(last, seen[1]) + 1) or range(first, first + 1)
        links = _links([row for part in near for row in self._sheet.rows(part)])
        if links:
            key, number = self._last_link
            number = (number + 1) % len(links) if key == self._cursor else 0
            self._last_link = (self._cursor, number)
            self.follow_link(links[number])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of a fresh start's card are keys only there, and only messages are pinned."""
        if action in ("find_next", "end_find"):
            return bool(self.sought)
        if action != "activate" or parameters == ("copy",):
            return True
        index = self._cursor_index()
        item = None if index is None else self._sheet[index].item
        if parameters == ("pin",):
            own = isinstance(item, ToolItem) and item.name == OWN_COMMAND
            return self.can_pin and isinstance(item, PINNABLE) and not own
        if parameters == ("copy_block",):
            return isinstance(item, ReplyItem)
        if parameters == ("open_task",):
            return isinstance(item, ToolItem) and bool(item.session_id)
        if parameters == ("fork",):
            return item is not None and is_message(item)
        return isinstance(item, BoundaryItem) and parameters[0] in item.actions

    def on_focus(self, event: events.Focus) -> None:
        """Every visit begins at the last item that is seen, unless it was led to one."""
        led, self._led = self._led, False
        if not (led or event.from_app_focus):  # else it is the same visit: the user was in another window
            self._cursor = None
        self._pull_cursor()
        self._stale = True

    def on_blur(self) -> None:
        self._stale = True

    def _step(self, step: int) -> None:
        """To the next item; first through the one at hand, where it is taller than the screen."""
        sheet, height = self._sheet, self.size.height
        index = self._cursor_index()
        if index is None:
            self._pull_cursor()
            return
        first, last = sheet.extent(index)
        top = sheet.heights.before(first)
        bottom = sheet.heights.before(last + 1)
        seen = round(self.scroll_y)
        if (step < 0 and top < seen) or (step > 0 and bottom > seen + height):
            self.go_to(seen + step * min(3, height))
            return
        following = sheet.neighbour(last if step > 0 else first, step)
        if following is None:
            self.go_to(seen + step)
            return
        sheet.rows(following)
        first, last = sheet.extent(following)
        top = sheet.heights.before(first)
        seen = round(self.scroll_y)
        bottom = sheet.heights.before(last + 1)
        if top < seen:
            self.go_to(max(top, bottom - height))
        elif bottom > seen + height:
            self.go_to(min(top, bottom - height))
        self._set_cursor(following)

    def _cursor_index(self) -> int | None:
        return None if self._cursor is None else self._sheet.index_of(self._cursor)

    def _set_cursor(self, index: int | None) -> None:
        self._cursor = None if index is None else item_key(self._sheet[index].key)
        self.show_changes()
        self.refresh_bindings()

    def _pull_cursor(self) -> None:
        """Brings the cursor into view: to the last item that is seen, unless it is in view."""
        sheet = self._sheet
        if not sheet.total:
            return
        first, last = self._seen_entries()
        index = self._cursor_index()
        if index is None or index > last:
            index = last
        self._set_cursor(max(index, first))

    def _seen_entries(self) -> tuple[int, int]:
        """The first and the last entry that are seen."""
        top, heights = round(self.scroll_y), self._sheet.heights
        return heights.find(top)[0], heights.find(min(top + self.size.height, self._sheet.total) - 1)[0]

    # --- mouse -------------------------------------------------------------------------------------------

    @property
    def allow_select(self) -> bool:
        return not (self._over_bar or self._dragging)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._over_bar = not self.following and event.x == self.size.width - 1
        if self._dragging:
            self._drag(event.y)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if not self.following and event.x == self.size.width - 1:
            self._dragging = True
            self.capture_mouse()
            self._drag(event.y)

    def on_mouse_up(self) -> None:
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _drag(self, y: int) -> None:
        height = self.size.height
        self.go_to(round(max(0, min(y, height - 1)) / max(1, height - 1) * (self._sheet.total - height)))

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()  # the default of two clicks is to select everything
        if not 0 <= event.y < len(self._places):
            return
        name = self._places[event.y]
        if name is None or (not self.following and event.x == self.size.width - 1):
            return
        key, row = named_line(name)
        index = self._sheet.index_of(key)
        if index is None:
            return
        if event.chain > 1:
            self._select(
                word_at(self._sheet, name, event.x) if event.chain == 2 else whole_item(self._sheet, key)
            )
            return
        if self.text_selection is not None:
            return
        self._cursor = item_key(key)
        meta = event.style.meta
        if "href" in meta:
            self.follow_link(str(meta["href"]))
        elif "action" in meta:
            self.activate(self._cursor, meta["action"])
        elif "copy_code" in meta:
            self.copy_code(self._cursor, block_in(self._sheet, index, row))
        elif row == 0 or not self._sheet[index].opened or isinstance(self._sheet[index].item, BoundaryItem):
            self._unfold(index, not self._sheet[index].opened)

    def _select(self, selection: Selection | None) -> None:
        if selection is not None:
            self.screen.selections = {self: selection}


def _links(rows: Sequence[TextRow]) -> list[str]:
    """Where the links in these rows lead, each once."""
    found = [segment.style.meta.get("href") for row in rows for segment in row.segments if segment.style]
    return list(dict.fromkeys(str(href) for href in found if href))
