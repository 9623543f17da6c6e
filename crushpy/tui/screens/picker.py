"""What the screens with a list have in common: a line to type in, rows below it, and a word about the row."""

from typing import ClassVar, Generic, TypeVar

from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.key_bar import KeyBar
from crushpy.tui.widgets.row_list import RowList

PickResult = TypeVar("PickResult")


class FilterLine(LineField):
    """The line to type in. What it has no use for goes to the rows and to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "screen.rows('move', -1)", "Up", show=False),
        Binding("down", "screen.rows('move', 1)", "Down", show=False),
        Binding("pageup", "screen.rows('page', -1)", "Page up", show=False),
        Binding("pagedown", "screen.rows('page', 1)", "Page down", show=False),
        Binding("tab", "screen.rows('focus')", "To the rows", show=False),
    ]

    def action_delete_right(self) -> None:
        if self.cursor_position >= len(self.value) and self.selection.is_empty:
            raise SkipAction  # nothing to delete here: the key may mean a row
        super().action_delete_right()


class PickScreen(ClosesOnce[PickResult], Generic[PickResult]):
    """A screen says what it does with words that are `typed` and a row that is `taken`."""

    DEFAULT_CSS = """
    PickScreen .title { height: 1; padding: 0 1; text-style: bold; background: $panel; color: $text; }
    PickScreen #about { height: auto; max-height: 6; padding: 0 1; color: $text-muted; }
    PickScreen.-short #about { max-height: 2; }
    PickScreen.-tiny #about { max-height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (12, "-short"), (18, "-tall")]
    AUTO_FOCUS = "FilterLine"

    placeholder = "type to filter"
    one_click = True

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="heading")
        yield FilterLine(self.first_words(), self.placeholder)
        yield RowList(one_click=self.one_click)
        yield Static(id="about")
        yield KeyBar()

    # --- what a screen says and does -----------------------------------------------------------------------

    def first_words(self) -> str:
        """What stands in the line when the screen opens."""
        return ""

    def typed(self, words: str) -> None:
        """The words changed."""

    def taken(self, number: int) -> None:
        """A row was taken."""

    def describe(self, number: int) -> Content:
        """A word about the row the cursor is on."""
        return Content("")

    def nothing(self) -> Content:
        """What to say where there are no rows."""
        return Content("Nothing found.")

    def action_close(self) -> None:
        self.dismiss(None)

    # --- the same for all ------------------------------------------------------------------------------

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    @property
    def words(self) -> str:
        return self.query_one(FilterLine).value

    def head(self, text: Content | str) -> None:
        self.query_one("#heading", Static).update(text)

    def about(self) -> None:
        """Says the word about the current row anew."""
        rows = self.rows
        text = self.describe(rows.highlighted) if rows.count else self.nothing()
        self.query_one("#about", Static).update(text)

    def action_rows(self, what: str, argument: int = 0) -> None:
        match what:
            case "move":
                self.rows.action_move(argument)
            case "page":
                self.rows.action_page(argument)
            case _:
                self.rows.focus()

    @on(Input.Changed, "FilterLine")
    def _typed(self, event: Input.Changed) -> None:
        self.typed(event.value)

    @on(Input.Submitted, "FilterLine")
    def _entered(self) -> None:
        self.rows.action_take()

    @on(RowList.Highlighted)
    def _moved(self) -> None:
        self.about()

    @on(RowList.Taken)
    def _taken(self, event: RowList.Taken) -> None:
        if event.number < self.rows.count:  # the list may have become shorter since
            self.taken(event.number)

    def on_key(self, event: events.Key) -> None:
        """Letters typed while the rows have the focus go to the line above."""
        if self.rows.has_focus and event.character and event.is_printable:
            if event.key in self.active_bindings:
                return
            event.stop()
            words = self.query_one(FilterLine)
            words.focus()
            words.insert_text_at_cursor(event.character)


def spread(left: Content, right: Content, width: int) -> Content:
    """`left` at the left and `right` at the right of one line; where both do not fit, `left` is shortened."""
    room = width - right.cell_length - (2 if right else 0)
    if room < 8:
        return left.truncate(width, ellipsis=True)
    left = left.truncate(room, ellipsis=True)
    return left + Content(" " * (width - left.cell_length - right.cell_length)) + right
