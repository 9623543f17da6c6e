"""Base classes of the screens opened over the chat: any of them, a list to choose from, a page to read."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from textual import events, on, work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from crushpy.core.errors import CrushpyError
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.notify import take_back, tell
from crushpy.tui.textual_adapter import AdaptedScreen, app_of
from crushpy.tui.widgets.fields import AreaField, LineField
from crushpy.tui.widgets.key_bar import KeyBar
from crushpy.tui.widgets.row_list import RowList

Result = TypeVar("Result")
ListRow = TypeVar("ListRow")


def in_worker(group: str):
    """Runs a method of an overlay in a worker, in place of the previous one of its group."""
    return work(group=group, exclusive=True, exit_on_error=False)


class OverlayScreen(AdaptedScreen[Result]):
    """A heading, a body and the keys. Beside another base it is listed last: Textual inherits styles only
    from the first."""

    DEFAULT_CSS = """
    OverlayScreen .frame { border: round $accent; }
    OverlayScreen.-tiny .frame, OverlayScreen.-short .frame { border: none; }
    OverlayScreen .title { height: auto; max-height: 2; padding: 0 1; text-style: bold; }
    """
    BINDINGS = [Binding("escape", "close", "Close")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (12, "-short"), (18, "-tall")]

    heading = ""
    confirming = ""
    """What was asked for once; the same key pressed again confirms it."""
    _warning = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="frame"):
            yield Static(Content(self.heading), classes="title", id="heading")
            yield from self.compose_body()
            yield KeyBar()

    def compose_body(self) -> ComposeResult:
        """Everything between the heading and the keys."""
        raise NotImplementedError

    def set_heading(self, text: str, detail: str = "") -> None:
        heading = Content.assemble(f"{text}  " if detail else text, (detail, "$text-muted"))
        self.query_one("#heading", Static).update(heading)

    def action_close(self) -> None:
        self.dismiss(None)

    def dismiss_if_chosen(self, chosen: Result | None) -> None:
        """Closes this screen with what the one above it has returned, unless that is nothing."""
        if chosen:
            self.dismiss(chosen)

    def may_quit(self) -> bool:
        """Whether the app may end now. A screen with unsaved text refuses once, and tells why."""
        return True

    def confirm(self, what: str, warning: str) -> bool:
        """False the first time, with a warning; True if the same is asked for again."""
        confirmed, self.confirming = self.confirming == what, what
        take_back(self, self._warning)
        self._warning = "" if confirmed else warning
        if not confirmed:
            tell(self, warning)
        return confirmed

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """A key or click that arrives after the one that closed it must not close the screen below."""
        if not self.is_active:
            return AwaitComplete()
        take_back(self, self._warning)  # it is about this screen
        return super().dismiss(result)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Shows an error of ours; any other ends the app."""
        if event.state is WorkerState.ERROR:
            error = cast("Worker[object]", cast(Any, event).worker).error
            if not isinstance(error, CrushpyError):
                raise error or AssertionError
            tell(self, str(error), "error")


class EditingScreen(OverlayScreen[Result]):
    """A text that can be edited. Edits are lost only after a warning, which names the key that confirms."""

    unsaved = ""
    """The warning, with `{}` for the key."""
    stored = ""

    @property
    def area(self) -> AreaField:
        return self.query_one(AreaField)

    @property
    def edited(self) -> bool:
        return self.area.text != self.stored

    def may_lose_edits(self, how: str) -> bool:
        return not self.edited or self.confirm(how, self.unsaved.format(how))

    def may_quit(self) -> bool:
        return self.may_lose_edits("Ctrl+Q again to quit")


class DialogScreen(ModalScreen[Result], OverlayScreen[Result]):
    """A dialog over another screen: the widget with the class `dialog` is its frame."""

    DEFAULT_CSS = """
    DialogScreen { align: center middle; }
    DialogScreen .dialog {
        width: 90%; max-width: 110; height: auto; max-height: 100%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    DialogScreen .dialog KeyBar { dock: none; margin-top: 1; padding: 0; }
    DialogScreen .problem { color: $error; }
    DialogScreen.-short KeyBar, DialogScreen.-tiny KeyBar { margin-top: 0; }
    DialogScreen.-tiny .dialog { width: 100%; border: none; padding: 0; }
    """

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content.styled(clean(self.heading), "bold"))
            yield from self.compose_body()
            yield KeyBar()

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.action_close()


class FilterLine(LineField):
    """The filter above a list. Keys it has no use for go to the rows and to the screen."""

    BINDINGS = [
        Binding("up", "screen.rows('move', -1)", "Up", show=False),
        Binding("down", "screen.rows('move', 1)", "Down", show=False),
        Binding("pageup", "screen.rows('page', -1)", "Page up", show=False),
        Binding("pagedown", "screen.rows('page', 1)", "Page down", show=False),
    ]

    def action_delete_right(self) -> None:
        if self.cursor_position >= len(self.value) and self.selection.is_empty:
            raise SkipAction  # nothing to delete here: the key may act on a row
        super().action_delete_right()


class ListScreen(OverlayScreen[Result], Generic[ListRow, Result]):
    """A filter, rows, and a description of the highlighted row. A subclass draws and describes rows, and says
    what choosing one does."""

    DEFAULT_CSS = """
    ListScreen #about { height: auto; max-height: 6; padding: 0 1; color: $text-muted; }
    ListScreen.-short #about { max-height: 2; }
    ListScreen.-tiny #about { max-height: 1; }
    """

    placeholder = "type to filter"
    initial_filter = ""
    one_click = True
    """Whether the first click on a row chooses it, or only moves the cursor there."""
    is_loading = False
    all_rows: Sequence[ListRow] = ()
    shown: Sequence[ListRow] = ()

    def compose_body(self) -> ComposeResult:
        yield FilterLine(one_line(self.initial_filter), self.placeholder)
        yield RowList(one_click=self.one_click)
        yield Static(id="about")

    def on_mount(self) -> None:
        self.refresh_rows()

    # --- defined by each screen --------------------------------------------------------------------------

    def row_text(self, row: ListRow) -> str:
        """The text the filter is matched against."""
        return str(row)

    def draw_row(self, row: ListRow, width: int) -> Content:
        raise NotImplementedError

    def describe_row(self, row: ListRow) -> Content:
        return Content("")

    def choose(self, row: ListRow) -> None:
        """Enter or a click on a row."""

    def empty_text(self) -> str:
        return "Nothing found"

    def filter_rows(self) -> Sequence[ListRow]:
        """The rows that contain every word of the filter."""
        words = self.filter_text.casefold().split()
        return [row for row in self.all_rows if all(word in self.row_text(row).casefold() for word in words)]

    def cursor_after_filter(self, previous: ListRow | None) -> int:
        """The row to highlight once other rows are shown."""
        return 0

    def filter_changed(self) -> None:
        self.refresh_rows()

    # --- the same for all --------------------------------------------------------------------------------

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    @property
    def filter_text(self) -> str:
        return self.query_one(FilterLine).value

    @property
    def current(self) -> ListRow | None:
        number = self.rows.highlighted
        return self.shown[number] if 0 <= number < len(self.shown) else None

    def refresh_rows(self) -> None:
        previous = self.current
        self.shown = self.filter_rows()
        self.show_rows(self.shown, self.cursor_after_filter(previous))

    def show_rows(self, rows: Sequence[ListRow], highlighted: int = 0) -> None:
        self.shown = rows
        self.rows.show(len(rows), lambda number, width: self.draw_row(self.shown[number], width), highlighted)

    @on(RowList.Highlighted)
    def _row_highlighted(self) -> None:
        self.refresh_description()

    def refresh_description(self) -> None:
        row = self.current
        empty = "Loading …" if self.is_loading else self.empty_text()
        self.query_one("#about", Static).update(Content(empty) if row is None else self.describe_row(row))

    def action_rows(self, what: str, argument: int) -> None:
        getattr(self.rows, f"action_{what}")(argument)

    @on(Input.Submitted, "FilterLine")
    def action_take(self) -> None:
        self.rows.action_take()

    @on(Input.Changed, "FilterLine")
    def _filter_changed(self) -> None:
        self.filter_changed()

    @on(RowList.Taken)
    def _row_taken(self, event: RowList.Taken) -> None:
        if event.number < len(self.shown):  # the list may have become shorter since
            self.choose(self.shown[event.number])

    def on_key(self, event: events.Key) -> None:
        """Letters typed while the rows have the focus go to the filter."""
        if not (self.rows.has_focus and event.is_printable) or event.key in self.active_bindings:
            return
        event.stop()
        line = self.query_one(FilterLine)
        line.focus()
        line.insert_text_at_cursor(event.character or "")


class FolderListScreen(ListScreen[ListRow, Result], Generic[ListRow, Result]):
    """A list of what is stored for one folder, or for all of them."""

    def __init__(self, cwd: str) -> None:
        super().__init__()
        self._cwd = cwd
        self.all_folders = False

    @property
    def folder(self) -> str | None:
        """The folder to list; None for all of them."""
        return None if self.all_folders else self._cwd

    @property
    def folder_label(self) -> str:
        return "all folders" if self.all_folders else one_line(self._cwd)

    def action_scope(self) -> None:
        self.all_folders = not self.all_folders
        self.scope_changed()

    def scope_changed(self) -> None:
        raise NotImplementedError


class PanelScreen(OverlayScreen[None]):
    """A text or a widget to scroll, with a heading: what a command reports."""

    DEFAULT_CSS = "PanelScreen VerticalScroll { height: 1fr; padding: 0 1; }"
    BINDINGS = [Binding("escape,q", "close", "Close")]

    def __init__(self, heading: str = "", body: str | Widget = "") -> None:
        super().__init__()
        self.heading = heading or self.heading
        self._body = body

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content(clean(self._body))) if isinstance(self._body, str) else self._body


class TextScreen(PanelScreen):
    """A subclass gives the text for a width."""

    def text(self, width: int) -> Content:
        raise NotImplementedError

    def on_resize(self) -> None:
        self.query_one("VerticalScroll Static", Static).update(self.text(app_of(self).size.width - 6))


def with_headings(markdown: str) -> Content:
    """A text with its headings in bold, without their marks."""
    lines = clean(markdown).strip().split("\n")
    return Content("\n").join(
        [
            Content.styled(line.lstrip("# "), "bold") if line.startswith("#") else Content(line)
            for line in lines
        ]
    )


def spread(left: Content, right: Content, width: int) -> Content:
    """One line with `left` and `right` at its ends. If both do not fit, `left` is shortened."""
    room = width - right.cell_length - (2 if right else 0)
    if room < 8:
        return left.truncate(width, ellipsis=True)
    left = left.truncate(room, ellipsis=True)
    return left + Content(" " * (width - left.cell_length - right.cell_length)) + right
