"""Going back: the prompts to rewind to, and the review of files before they are restored."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from crushpy.core.messages import Diff, counted
from crushpy.engine.rewind.file_views import FileView
from crushpy.engine.rewind.rewinder import PointSummary
from crushpy.security.sanitize import one_line
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.screens.picker import PickScreen, spread
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.diff_rows import draw_diff
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.widgets.key_bar import KeyBar
from crushpy.tui.widgets.row_list import RowList

SHOWN_PATHS = 8


class RewindScreen(PickScreen[str]):
    """Returns the id of the prompt to go back to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Go back to before it"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = "type to filter your prompts"

    def __init__(self, points: Sequence[PointSummary], folder: str) -> None:
        super().__init__()
        self._folder = folder.rstrip("/") + "/"
        self._all = list(reversed(points))
        self._shown = self._all

    def on_mount(self) -> None:
        self.head("Rewind: go back to before which prompt?")
        self.typed("")

    def typed(self, words: str) -> None:
        wanted = words.casefold().split()
        self._shown = [
            one for one in self._all if all(word in one.message.text.casefold() for word in wanted)
        ]
        self.rows.show(len(self._shown), self._row)

    def _row(self, number: int, width: int) -> Content:
        point = self._shown[number]
        files = f"{counted(point.files, 'file')} since" if point.files else "no file since"
        return spread(
            Content(one_line(point.message.text) or "(a picture)"),
            Content.styled(files, "$text-muted"),
            width,
        )

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        self.dismiss(self._shown[number].message.id)

    def describe(self, number: int) -> Content:
        paths = self._shown[number].paths
        if not paths:
            return Content("Nothing that was done since changed a file.")
        more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
        named = ", ".join([path.removeprefix(self._folder) for path in paths[:SHOWN_PATHS]])
        return Content(one_line(f"Changed since: {named}{more}"))

    def nothing(self) -> Content:
        return Content("No prompt holds these words.")


class RestorationScreen(ClosesOnce[frozenset[str] | None]):
    """Returns the paths to put back, as the views name them; None where nothing is to be done."""

    DEFAULT_CSS = """
    RestorationScreen .title { height: auto; max-height: 3; padding: 0 1; background: $panel; }
    RestorationScreen RowList { height: 1fr; max-height: 40%; }
    RestorationScreen #note { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    RestorationScreen VerticalScroll { height: 2fr; padding: 0 1; border-top: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "confirm", "Put back", priority=True),
        Binding("space", "leave_out", "Leave out or in"),
        Binding("tab", "look", "List or diff", priority=True),
        Binding("escape", "dismiss(None)", "Cancel"),
    ]
    AUTO_FOCUS = "RowList"

    def __init__(
        self,
        title: str,
        views: tuple[FileView, ...],
        palette: Callable[[], Palette],
        *,
        note: str = "",
        always: bool = False,
    ) -> None:
        """`always`: there is something to confirm even where no file is put back."""
        super().__init__()
        self._title = title
        self._views = views
        self._palette = palette
        self._note = note
        self._always = always
        self._chosen = {view.path for view in views if view.action != "conflict"}

    def compose(self) -> ComposeResult:
        yield Static(Content(one_line(self._title)), classes="title")
        yield RowList(one_click=False)
        yield Static(Content(self._note), id="note")
        yield VerticalScroll(id="diff")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(RowList).show(len(self._views), self._row)
        self.query_one("#note").display = bool(self._note)

    def _row(self, number: int, width: int) -> Content:
        view = self._views[number]
        if view.action == "conflict":
            return Content.assemble(
                "    left alone  ", one_line(view.path), (f"  {one_line(view.note)}", "$text-warning")
            )
        mark = "[x] " if view.path in self._chosen else "[ ] "
        figures = [(f"  +{view.added}", "$text-success"), (f" -{view.removed}", "$text-error")]
        shown = figures if view.added or view.removed else []
        note = [(f"  {one_line(view.note)}", "$text-muted")] if view.note else []
        return Content.assemble(
            mark, f"{RETURNS.get(view.action, view.action):<10}", one_line(view.path), *shown, *note
        )

    @on(RowList.Highlighted)
    def _highlighted(self, event: RowList.Highlighted) -> None:
        self._show_diff(event.number)

    def _show_diff(self, number: int) -> None:
        scroll = self.query_one("#diff", VerticalScroll)
        scroll.remove_children()
        if not 0 <= number < len(self._views):
            return
        view = self._views[number]
        if not view.unified:
            words = view.note or "There is no text to compare."
            scroll.mount(Static(Content(one_line(f"{view.path}: {words}"))))
            return
        diff = Diff(view.path, view.unified, view.added, view.removed)

        def draw(canvas: Canvas) -> None:
            draw_diff(diff, canvas, Margin((), ()))

        scroll.mount(DrawnDisplay(draw, self._palette))
        scroll.scroll_home(animate=False)

    # --- keys --------------------------------------------------------------------------------------------

    @on(RowList.Taken)
    def _taken(self, event: RowList.Taken) -> None:
        self.action_leave_out()

    def action_leave_out(self) -> None:
        rows = self.query_one(RowList)
        if not self._views or self._views[rows.highlighted].action == "conflict":
            return
        self._chosen ^= {self._views[rows.highlighted].path}
        rows.refresh()

    def action_look(self) -> None:
        rows, diff = self.query_one(RowList), self.query_one("#diff", VerticalScroll)
        (diff if rows.has_focus else rows).focus()

    def action_confirm(self) -> None:
        if self._chosen or self._always:
            self.dismiss(frozenset(self._chosen))


RETURNS = {
    "created": "comes back",
    "deleted": "goes",
    "changed": "changes",
    "mode": "mode",
    "replaced": "changes",
}
"""What putting a path back does to it, for people."""
