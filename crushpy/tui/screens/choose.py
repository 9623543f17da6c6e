"""A dialog to choose one of a list: type to filter, arrows to move, Enter to choose."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from crushpy.core.messages import Data
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.overlay import ListScreen

KEYS = "Enter choose  Esc cancel  ↑↓ move"


class Choice(Data, frozen=True):
    """One row: `value` is what the dialog returns."""

    value: str
    title: str
    detail: str = ""
    current: bool = False


class ChooseScreen(ModalScreen[str | None], ListScreen[Choice, str | None]):
    """Returns the value of the chosen row, or None."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; }
    ChooseScreen > Vertical {
        width: 80%; max-width: 90; height: auto; max-height: 80%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    ChooseScreen FilterLine, ChooseScreen FilterLine:focus { margin: 1 0; padding: 0; }
    ChooseScreen RowList { height: auto; background: $surface; }
    ChooseScreen #about { height: auto; max-height: 3; color: $text-muted; }
    ChooseScreen.-short > Vertical, ChooseScreen.-tiny > Vertical { max-height: 100%; }
    ChooseScreen.-tiny > Vertical { padding: 0; }
    ChooseScreen.-short FilterLine, ChooseScreen.-tiny FilterLine { margin: 0; }
    ChooseScreen.-short .hint, ChooseScreen.-tiny .hint { display: none; }
    """

    def __init__(self, title: str, choices: Sequence[Choice], *, hint: str = "") -> None:
        super().__init__()
        self.all_rows = choices
        self._title = title
        self._hint = hint

    def compose(self) -> ComposeResult:
        with Vertical() as dialog:
            dialog.border_subtitle = KEYS
            yield Static(Content.styled(clean(self._title), "bold"))
            yield from self.compose_body()
            if self._hint:
                yield Static(Content.styled(clean(self._hint), "$text-muted"), classes="hint")

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_rows)

    def _fit_rows(self) -> None:
        """Gives the list the lines that nothing else needs."""
        dialog, rows = self.query_one(Vertical), self.rows
        percent = 80 if self.has_class("-tall") else 100
        others = [one for one in dialog.children if one.display and one is not rows]
        used = dialog.gutter.height + sum(one.outer_size.height + one.styles.margin.height for one in others)
        rows.styles.max_height = max(1, self.size.height * percent // 100 - used)

    def refresh_description(self) -> None:
        super().refresh_description()
        about = self.query_one("#about", Static)
        about.display = bool(str(about.content))
        self.call_after_refresh(self._fit_rows)

    def row_text(self, row: Choice) -> str:
        return f"{row.title} {row.detail} {row.value}"

    def draw_row(self, row: Choice, width: int) -> Content:
        mark = "● " if row.current else "  "
        line = Content.assemble(mark, (one_line(row.title), "bold" if row.current else ""))
        return line + Content.styled(f"  {one_line(row.detail)}", "$text-muted") if row.detail else line

    def describe_row(self, row: Choice) -> Content:
        """The whole text of a row that is cut off."""
        line = self.draw_row(row, 0)
        fits = line.cell_length <= self.rows.size.width - 2 or self.has_class("-tiny")
        return Content("" if fits else line.plain.strip(" ●"))

    def cursor_after_filter(self, previous: Choice | None) -> int:
        return next((number for number, choice in enumerate(self.shown) if choice.current), 0)

    def empty_text(self) -> str:
        return "Nothing matches"

    def choose(self, row: Choice) -> None:
        self.dismiss(row.value)
