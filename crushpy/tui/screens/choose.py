"""Dialogs: choose one of a list (type to filter, Enter chooses), the command palette, write one line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.style import Style
from textual.widgets import Static

from crushpy.core.app_commands import APP_COMMANDS, COMMAND_GROUPS, AppCommand
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.overlay import DialogScreen, ListRow, ListScreen, spread
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.key_bar import key_name


class Choice(Data, frozen=True):
    """One row: `value` is what the dialog returns."""

    value: str
    title: str
    detail: str = ""
    current: bool = False


class DialogListScreen(DialogScreen[str | None], ListScreen[ListRow, str | None], Generic[ListRow]):
    """A dialog with a title, a filter, rows, and what a row that is cut off says in full."""

    DEFAULT_CSS = """
    DialogListScreen FilterLine, DialogListScreen FilterLine:focus { margin: 1 0; padding: 0; }
    DialogListScreen RowList { height: auto; background: $surface; }
    DialogListScreen #about { max-height: 3; }
    DialogListScreen.-short FilterLine, DialogListScreen.-tiny FilterLine { margin: 0; }
    DialogListScreen.-short .hint, DialogListScreen.-tiny .hint { display: none; }
    """
    BINDINGS = [
        Binding("enter", "take", "Choose"),
        Binding("escape", "close", "Cancel"),
    ]
    hint = ""

    def compose_body(self) -> ComposeResult:
        yield from super().compose_body()
        if self.hint:
            yield Static(Content(clean(self.hint)), classes="hint")

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_rows)

    def _fit_rows(self) -> None:
        """Gives the list the lines that nothing else needs."""
        dialog, rows = self.query_one(Vertical), self.rows
        percent = 80 if self.has_class("-tall") else 100
        others = [child for child in dialog.children if child.display and child is not rows]
        used = dialog.gutter.height + sum(
            other.outer_size.height + other.styles.margin.height for other in others
        )
        rows.styles.max_height = max(1, self.size.height * percent // 100 - used)

    def refresh_description(self) -> None:
        super().refresh_description()
        about = self.query_one("#about", Static)
        about.display = bool(str(about.content))
        self.call_after_refresh(self._fit_rows)

    def describe_row(self, row: ListRow) -> Content:
        """The whole text of a row that is cut off."""
        line = self.draw_row(row, 0)
        fits = line.cell_length <= self.rows.size.width - 2 or self.has_class("-tiny")
        return Content("" if fits else line.plain.strip(" ●"))

    def empty_text(self) -> str:
        return "Nothing matches"


class ChooseScreen(DialogListScreen[Choice]):
    """Returns the value of the chosen row, or None."""

    def __init__(self, title: str, choices: Sequence[Choice], *, hint: str = "") -> None:
        super().__init__()
        self.all_rows = choices
        self.heading = title
        self.hint = hint

    def row_text(self, row: Choice) -> str:
        return f"{row.title} {row.detail} {row.value}"

    def draw_row(self, row: Choice, width: int) -> Content:
        mark = "● " if row.current else "  "
        line = Content.assemble(mark, (one_line(row.title), "bold" if row.current else ""))
        return line + Content(f"  {one_line(row.detail)}") if row.detail else line

    def cursor_after_filter(self, previous: Choice | None) -> int:
        return next((number for number, choice in enumerate(self.shown) if choice.current), 0)

    def choose(self, row: Choice) -> None:
        self.dismiss(row.value)


class LineScreen(DialogScreen[str | None]):
    """Returns what `check` makes of the text in `field`, or None. `check` may raise CrushpyError."""

    DEFAULT_CSS = "LineScreen LineField, LineScreen LineField:focus { margin: 1 0; padding: 0; }"
    BINDINGS = [
        Binding("enter", "store", "OK", priority=True),
        Binding("escape", "close", "Cancel"),
    ]

    def __init__(
        self, heading: str, field: LineField, hint: str = "", check: Callable[[str], str] = str
    ) -> None:
        super().__init__()
        self.heading, self._field, self._hint, self._check = heading, field, hint, check

    def compose_body(self) -> ComposeResult:
        yield self._field
        yield Static(Content(clean(self._hint)))
        yield Static(classes="problem")

    def action_store(self) -> None:
        try:
            self.dismiss(self._check(self._field.value))
        except CrushpyError as error:
            self.query_one(".problem", Static).update(Content(clean(str(error))))


MAX_RECENT = 5
"""Commands at the top that were used last."""
GROUP_COLUMNS = 11
MIN_COLUMNS_FOR_GROUPS = 50
MIN_COLUMNS_FOR_HELP = 100
"""In narrower rows the help is shown below them."""


class PaletteScreen(DialogListScreen[AppCommand]):
    """Returns the action of a command, `/name` for one of `further`, or None. `recent` come first; `keys` are
    those that the user changed."""

    heading = "Commands"
    placeholder = "Search for commands…"

    def __init__(
        self,
        recent: Sequence[str],
        keys: Mapping[str, str],
        further: Sequence[AppCommand] = (),
        commands: Sequence[AppCommand] = APP_COMMANDS,
    ) -> None:
        super().__init__()
        self._title_columns = max(len(command.title) for command in commands) + 2
        by_action = {command.action: command for command in commands}
        used = [by_action[action] for action in recent if action in by_action][:MAX_RECENT]
        groups = COMMAND_GROUPS.items()
        self._group_of = {command.action: name for name, group in groups for command in group}
        self._group_of |= {command.action: "Last used" for command in used}
        self.all_rows = [
            *used,
            *(command for command in commands if command not in used),
            *(msgspec.structs.replace(command, action=f"/{command.slash}") for command in further),
        ]
        self._keys = keys

    def filter_rows(self) -> Sequence[AppCommand]:
        """What matches the title, the best first; then what contains the words in its name or help."""
        typed = self.filter_text
        if not typed:
            return self.all_rows
        matcher = Matcher(typed)
        scores = {row: matcher.match(row.title) for row in self.all_rows}
        words = {row: f"/{row.slash} {row.help}".casefold() for row in self.all_rows}
        found = [row for row in self.all_rows if scores[row] or typed.casefold() in words[row]]
        return sorted(found, key=lambda choice: -scores[choice])

    def draw_row(self, row: AppCommand, width: int) -> Content:
        """The title, what it does if there is room, and at the right its name and key."""
        matcher = Matcher(self.filter_text, match_style=Style(bold=True, underline=True))
        title = matcher.highlight(row.title) if self.filter_text else Content(row.title)
        key = self._keys.get(row.action) or row.key
        slash = f"/{row.slash}" if row.slash else ""
        names = "  ".join(filter(None, (slash, key_name(key.partition(",")[0]) if key else "")))
        if not self.filter_text and width >= MIN_COLUMNS_FOR_GROUPS:
            title = Content.styled(f"{self._heading_of(row):<{GROUP_COLUMNS}}", "$text-muted") + title
        if width >= MIN_COLUMNS_FOR_HELP:
            title = Content.assemble(
                title, " " * (self._title_columns + GROUP_COLUMNS - title.cell_length), row.help
            )
        return spread(title, Content.styled(names, "$text-accent"), width)

    def _heading_of(self, row: AppCommand) -> str:
        """The group, beside its first row."""
        at = self.all_rows.index(row)
        group = self._group_of.get(row.action, "Yours")
        before = self._group_of.get(self.all_rows[at - 1].action, "Yours") if at else ""
        return group if group != before else ""

    def describe_row(self, row: AppCommand) -> Content:
        """What it does, if the rows have no room for it."""
        return Content("" if self.rows.size.width - 2 >= MIN_COLUMNS_FOR_HELP else row.help)

    def choose(self, row: AppCommand) -> None:
        self.dismiss(row.action)
