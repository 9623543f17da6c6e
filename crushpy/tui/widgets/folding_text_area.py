"""A text area that folds large pastes to marks, and takes keys strictly in the order they were typed."""

from typing import Any, ClassVar, cast

from textual import events
from textual.actions import SkipAction
from textual.app import App
from textual.binding import Binding, BindingsMap, BindingType
from textual.widgets import TextArea
from textual.widgets.text_area import EditResult, Location, Selection

from crushpy.security.sanitize import clean
from crushpy.tui.widgets.folded_pastes import Folded, Pastes, plain_breaks, too_large


class FoldingTextArea(TextArea):
    """A mark is one unit: the cursor steps over it and a deletion takes all of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+underscore", "undo", "Undo", show=False),
        Binding("ctrl+shift+z", "redo", "Redo", show=False),
        Binding("alt+d", "delete_word_right", "Delete word", show=False),
    ]

    def __init__(self) -> None:
        self.pastes = Pastes()
        self._keys: tuple[object, BindingsMap] | None = None
        super().__init__(soft_wrap=True, highlight_cursor_line=False)
        self.cursor_blink = False  # no timer while idle

    @property
    def host(self) -> App[Any]:
        """The app, with a type."""
        return cast("App[Any]", self.app)  # pyright: ignore[reportUnknownMemberType]

    # --- keys --------------------------------------------------------------------------------------------

    def takes(self, event: events.Key) -> bool:
        """True for a key that types or edits here."""
        return event.is_printable or event.key in self._bound().key_to_bindings

    def intercept(self, key: str) -> bool:
        """Takes a key before anything else does; True where it did."""
        return False

    def take_command(self, event: events.Key) -> bool:
        """Takes a key that would be typed, where it means something else; True where it did."""
        return False

    async def on_key(self, event: events.Key) -> None:
        if self.intercept(event.key) or self.take_command(event):
            event.stop()
            event.prevent_default()
            return
        if event.is_printable:
            if event.key.startswith("alt+"):
                event.prevent_default()  # Textual would type the letter
            else:
                return
        # Left to bubble, a key would be acted on after letters that were typed behind it.
        for binding in self._bound().key_to_bindings.get(event.key, ()):
            if await self.host.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return

    def _bound(self) -> BindingsMap:
        """Our bindings as the user's keymap has them."""
        keymap = self.host._keymap  # pyright: ignore[reportPrivateUsage]
        if self._keys is None or self._keys[0] is not keymap:
            bindings = self._bindings.copy()
            bindings.apply_keymap(keymap)
            self._keys = keymap, bindings
        return self._keys[1]

    def find_matching_bracket(self, bracket: str, search_from: Location) -> Location | None:
        return None  # prose; and the search would walk through all of it at each step

    def action_delete_right(self) -> None:
        if not self.text:
            raise SkipAction  # Ctrl+D in an empty prompt is the app's
        super().action_delete_right()

    def action_cursor_page_up(self) -> None:
        self._skip_unless_scrolling()
        super().action_cursor_page_up()

    def action_cursor_page_down(self) -> None:
        self._skip_unless_scrolling()
        super().action_cursor_page_down()

    def _skip_unless_scrolling(self) -> None:
        if self.wrapped_document.height <= self.content_size.height:
            raise SkipAction  # the transcript's

    # --- pastes ------------------------------------------------------------------------------------------

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste_text(event.text)

    def action_paste(self) -> None:
        self.paste_own_clipboard()

    def paste_own_clipboard(self) -> None:
        """Pastes what was cut or copied in the app."""
        self.paste_text(self.host.clipboard)

    def paste_text(self, text: str) -> None:
        """Puts foreign text at the cursor: harmless, and folded where it is large."""
        text = plain_breaks(text)
        if too_large(text):
            folded = self.pastes.fold(text)
            if folded.waits:
                self.run_worker(lambda: _settle(folded), thread=True, group="pastes")
            text = folded.mark
        else:
            text = clean(text)
        start, end = self.selection
        self.move_cursor(self.replace(text, start, end, maintain_selection_offset=False).end_location)

    def action_copy(self) -> None:
        super().action_copy()
        self._copy_whole()

    def action_cut(self) -> None:
        something = bool(self.text)
        super().action_cut()
        if something:
            self._copy_whole()

    def _copy_whole(self) -> None:
        """Marks mean nothing elsewhere: what they stand for is copied, to every clipboard there is."""
        from crushpy.tui.terminal.clipboard import hand_on

        whole = self.pastes.expand(self.host.clipboard)
        if whole != self.host.clipboard:
            self.host.copy_to_clipboard(whole)
        self.run_worker(hand_on(whole), group="clipboard")

    # --- marks are units ---------------------------------------------------------------------------------

    def validate_selection(self, selection: Selection) -> Selection:
        old = self.selection
        return Selection(self._step_over(selection.start, old.start), self._step_over(selection.end, old.end))

    def delete(self, start: Location, end: Location, *, maintain_selection_offset: bool = True) -> EditResult:
        start, end = self._widen(start, end)
        return super().delete(start, end, maintain_selection_offset=maintain_selection_offset)

    def replace(
        self, insert: str, start: Location, end: Location, *, maintain_selection_offset: bool = True
    ) -> EditResult:
        start, end = self._widen(start, end)
        return super().replace(insert, start, end, maintain_selection_offset=maintain_selection_offset)

    def _mark_at(self, location: Location) -> tuple[int, int] | None:
        """The columns of the mark that has `location` inside it."""
        row, column = location
        if row >= self.document.line_count:
            return None
        spans = self.pastes.spans(self.document.get_line(row))
        return next(((start, end) for start, end in spans if start < column < end), None)

    def _step_over(self, to: Location, come_from: Location) -> Location:
        mark = self._mark_at(to)
        if mark is None:
            return to
        row, (start, end) = to[0], mark
        if come_from <= (row, start):
            return row, end
        if come_from >= (row, end):
            return row, start
        return row, (start if to[1] - start < end - to[1] else end)

    def _widen(self, start: Location, end: Location) -> tuple[Location, Location]:
        start, end = sorted((start, end))
        before, behind = self._mark_at(start), self._mark_at(end)
        return (
            (start[0], before[0]) if before else start,
            (end[0], behind[1]) if behind else end,
        )


def _settle(folded: Folded) -> None:
    """Cleans a large paste in a thread, so that sending it takes no time."""
    _ = folded.text
