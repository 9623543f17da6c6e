"""Going back: the prompts to rewind to, and the review of files before they are restored."""

from collections.abc import Awaitable, Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from crushpy.core.messages import Diff, counted, first_names
from crushpy.core.pastes import fold_pastes
from crushpy.engine.rewind.rewinder import FileView, PointSummary
from crushpy.security.sanitize import one_line
from crushpy.tui.screens.overlay import ListScreen, OverlayScreen, in_worker, spread
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.transcript.render.canvas import Margin
from crushpy.tui.transcript.render.diff_rows import draw_diff
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.widgets.row_list import RowList
from crushpy.undo.restoration import NetChange

MAX_PATHS_SHOWN = 8
NOT_COVERED = "Changes by commands to ignored files, to .git and outside this folder are not covered"
RESTORE_LABELS = {
    "created": "recreate",
    "deleted": "delete",
    "changed": "restore",
    "mode": "mode",
    "replaced": "restore",
}
"""What restoring a path does to it."""


class RewindScreen(ListScreen[PointSummary, str]):
    """Returns the id of the prompt to go back to; the latest prompt comes first."""

    BINDINGS = [
        Binding("enter", "take", "Go back to before it"),
        Binding("escape", "close", "Close"),
    ]
    heading = "Rewind: go back to before which prompt?"
    placeholder = "type to filter your prompts"

    def __init__(
        self,
        points: Sequence[PointSummary],
        folder: str,
        view: Callable[[Sequence[NetChange]], Awaitable[Sequence[FileView]]],
    ) -> None:
        """`view` tells what changes did to files."""
        super().__init__()
        self.all_rows = list(reversed(points))
        self._folder = folder.rstrip("/") + "/"
        self._view = view
        self._views: dict[str, Sequence[FileView]] = {}

    @on(events.Mount)
    @in_worker("views")
    async def _load_views(self) -> None:
        """The latest first; each row shows its figures as soon as they are known."""
        for row in self.all_rows:
            if row.turn:
                self._views[row.message.id] = await self._view(row.turn)
                self.rows.refresh()

    def row_text(self, row: PointSummary) -> str:
        return row.message.text

    def draw_row(self, row: PointSummary, width: int) -> Content:
        prompt = Content(one_line(fold_pastes(row.message.text, row.message.pasted)) or "(an image)")
        return spread(prompt, self._turn_figures(row, width * 2 // 3), width)

    def _turn_figures(self, row: PointSummary, width: int) -> Content:
        """What the turn changed: tax.py +3 -1, and how many files are not named for want of room."""
        views = self._views.get(row.message.id, ())
        if not views:
            words = counted(len(row.turn), "file") if row.turn else "no changes"
            return Content.styled(words, "$text-muted")
        shown = Content("")
        for number, view in enumerate(views):
            figures = _figures(view)
            if view.note and not view.added + view.removed:  # binary, or too large to compare
                figures = [(f" {one_line(view.note).partition(',')[0]}", "$text-muted")]
            label = one_line(view.path).rpartition("/")[2]
            more = Content.assemble("  " if shown else "", (label, "$text-muted"), *figures)
            if shown.cell_length + more.cell_length > width - 10 and number:
                return shown + Content.styled(f"  {len(views) - number} more", "$text-muted")
            shown += more
        return shown

    def describe_row(self, row: PointSummary) -> Content:
        if not row.paths:
            return Content("No file was changed since")
        named = first_names([path.removeprefix(self._folder) for path in row.paths], MAX_PATHS_SHOWN)
        return Content(one_line(f"Changed since: {named}"))

    def empty_text(self) -> str:
        return "No prompt contains these words"

    def choose(self, row: PointSummary) -> None:
        self.dismiss(row.message.id)


def _figures(view: FileView) -> list[tuple[str, str]]:
    return [(f" +{view.added}", "$text-success"), (f" -{view.removed}", "$text-error")]


class RestorationScreen(OverlayScreen[frozenset[str] | None]):
    """Shows what would be restored, with diffs. Returns the paths to restore; None if it was cancelled."""

    DEFAULT_CSS = """
    RestorationScreen .title { max-height: 3; text-style: none; }
    RestorationScreen RowList { height: 1fr; max-height: 40%; }
    RestorationScreen #note { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    RestorationScreen VerticalScroll { height: 2fr; padding: 0 1; border-top: solid $panel; }
    """
    BINDINGS = [
        Binding("enter", "confirm", "Restore", priority=True),
        Binding("space", "include", "Include or leave out"),
        Binding("tab", "app.focus_next", "List or diff"),
        Binding("escape", "close", "Cancel"),
    ]

    def __init__(
        self,
        title: str,
        views: tuple[FileView, ...],
        palette: Callable[[], Palette],
        *,
        always: bool = False,
    ) -> None:
        """`always`: it can be confirmed even if no file is restored."""
        super().__init__()
        self.heading = one_line(title)
        self._views = views
        self._palette = palette
        self._always = always
        self._chosen = {view.path for view in views if view.action != "conflict"}

    def compose_body(self) -> ComposeResult:
        yield RowList(one_click=False)
        yield Static(NOT_COVERED, id="note")
        yield VerticalScroll(id="diff")

    def on_mount(self) -> None:
        self.query_one(RowList).show(len(self._views), self._draw_row)

    def _draw_row(self, number: int, width: int) -> Content:
        view = self._views[number]
        if view.action == "conflict":
            return Content.assemble(
                "    skipped   ", one_line(view.path), (f"  {one_line(view.note)}", "$text-warning")
            )
        mark = "[x] " if view.path in self._chosen else "[ ] "
        shown = [" ", *_figures(view)] if view.added or view.removed else []
        note = [(f"  {one_line(view.note)}", "$text-muted")] if view.note else []
        label = RESTORE_LABELS.get(view.action, view.action)
        return Content.assemble(mark, f"{label:<10}", one_line(view.path), *shown, *note)

    @on(RowList.Highlighted)
    def _show_diff(self, event: RowList.Highlighted) -> None:
        scroll = self.query_one("#diff", VerticalScroll)
        scroll.remove_children()
        if not 0 <= event.number < len(self._views):
            return
        view = self._views[event.number]
        if not view.unified:
            scroll.mount(Static(Content(one_line(f"{view.path}: {view.note or 'no text to compare'}"))))
            return
        diff = Diff(view.path, view.unified, view.added, view.removed)
        scroll.mount(DrawnDisplay(lambda canvas: draw_diff(diff, canvas, Margin((), ())), self._palette))
        scroll.scroll_home(animate=False)

    @on(RowList.Taken)
    def action_include(self) -> None:
        rows = self.query_one(RowList)
        if self._views and self._views[rows.highlighted].action != "conflict":
            self._chosen ^= {self._views[rows.highlighted].path}
            rows.refresh()

    def action_confirm(self) -> None:
        if self._chosen or self._always:
            self.dismiss(frozenset(self._chosen))
