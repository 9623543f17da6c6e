"""The command palette: the commands of the table, found by title, name or help."""

from collections.abc import Mapping, Sequence

import msgspec
from textual.content import Content
from textual.fuzzy import Matcher
from textual.style import Style

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.tui.screens.choose import DialogListScreen
from crushpy.tui.screens.overlay import spread
from crushpy.tui.widgets.key_bar import key_name

TITLE_COLUMNS = max(len(command.title) for command in APP_COMMANDS) + 2
MIN_COLUMNS_FOR_HELP = 100
"""In narrower rows the help is shown below them."""


class PaletteScreen(DialogListScreen[AppCommand]):
    """Returns the action of a command, `/name` for one of `further`, or None. `recent` come first; `keys` are
    those that the user changed."""

    heading = "Commands"
    placeholder = "Search for commands…"

    def __init__(
        self, recent: Sequence[str], keys: Mapping[str, str], further: Sequence[AppCommand] = ()
    ) -> None:
        super().__init__()
        place = {action: at for at, action in enumerate(recent)}
        own = sorted(APP_COMMANDS, key=lambda command: place.get(command.action, len(place)))
        self.all_rows = [*own, *(msgspec.structs.replace(one, action=f"/{one.slash}") for one in further)]
        self._keys = keys

    def filter_rows(self) -> Sequence[AppCommand]:
        """What matches the title, the best first; then what contains the words in its name or help."""
        typed = self.filter_text
        if not typed:
            return self.all_rows
        matcher = Matcher(typed)
        scores = {one: matcher.match(one.title) for one in self.all_rows}
        words = {one: f"/{one.slash} {one.help}".casefold() for one in self.all_rows}
        found = [one for one in self.all_rows if scores[one] or typed.casefold() in words[one]]
        return sorted(found, key=lambda one: -scores[one])

    def draw_row(self, row: AppCommand, width: int) -> Content:
        """The title, what it does if there is room, and at the right its name and key."""
        matcher = Matcher(self.filter_text, match_style=Style(bold=True, underline=True))
        title = matcher.highlight(row.title) if self.filter_text else Content(row.title)
        key = self._keys.get(row.action) or row.key
        slash = f"/{row.slash}" if row.slash else ""
        names = "  ".join(filter(None, (slash, key_name(key.partition(",")[0]) if key else "")))
        if width >= MIN_COLUMNS_FOR_HELP:
            title = Content.assemble(title, " " * (TITLE_COLUMNS - title.cell_length), row.help)
        return spread(title, Content.styled(names, "$text-accent"), width)

    def describe_row(self, row: AppCommand) -> Content:
        """What it does, if the rows have no room for it."""
        return Content("" if self.rows.size.width - 2 >= MIN_COLUMNS_FOR_HELP else row.help)

    def choose(self, row: AppCommand) -> None:
        self.dismiss(row.action)
