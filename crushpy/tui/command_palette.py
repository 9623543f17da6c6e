"""The command palette: the commands of the table, found by title, name or help."""

from collections.abc import Mapping, Sequence

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.command import CommandInput, CommandList, CommandPalette, SearchIcon
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.tui.screens.overlay import OverlayScreen, spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import LOW_ROWS, key_name

MAX_COLUMNS = 80
FRAME_COLUMNS = 6
"""Columns of the border, the padding and the scrollbar."""
GAP_COLUMNS = 2
MIN_HELP_COLUMNS = 12
LIST_KEYS = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}


class PaletteList(CommandList):
    """Textual crashes on a click on a row that was removed."""

    def on_click(self, event: events.Click) -> None:
        number = event.style.meta.get("option")
        if number is not None and number >= self.option_count:
            event.prevent_default()


class PaletteScreen(ModalScreen[str | None], OverlayScreen[str | None]):
    """Returns the action of a command, `/name` for one of `further`, or None. `recent` come first; `keys` are
    those that the user changed.

    It looks like Textual's palette, which filters in the background: there, Enter may come before the list.
    """

    DEFAULT_CSS = (
        CommandPalette.DEFAULT_CSS.replace("CommandPalette", "PaletteScreen")
        + """
    PaletteScreen > Vertical { width: 80; max-width: 100%; }
    PaletteScreen SearchIcon { color: $text-muted; }
    PaletteScreen.-tiny > Vertical { margin-top: 0; }
    PaletteScreen.-tiny #--input { border: none; }
    PaletteScreen.-tiny #--input CommandInput { border: none; padding: 0; height: 1; }
    PaletteScreen.-tiny CommandList { border: none; padding: 0; max-height: 7; }
    """
    )
    COMPONENT_CLASSES = CommandPalette.COMPONENT_CLASSES
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (LOW_ROWS, "-roomy")]
    AUTO_FOCUS = "CommandInput"
    BINDINGS = [Binding(key, f"move('{action}')", "Move", show=False) for key, action in LIST_KEYS.items()]

    def __init__(
        self, recent: Sequence[str], keys: Mapping[str, str], further: Sequence[AppCommand] = ()
    ) -> None:
        super().__init__(classes="-ready")
        place = {action: at for at, action in enumerate(recent)}
        own = sorted(APP_COMMANDS, key=lambda command: place.get(command.action, len(place)))
        self._commands = [*own, *(msgspec.structs.replace(one, action=f"/{one.slash}") for one in further)]
        self._keys = keys

    def compose(self) -> ComposeResult:
        with Vertical(id="--container"):
            with Horizontal(id="--input", classes="--list-visible"):
                yield SearchIcon()
                yield CommandInput(placeholder="Search for commands…", select_on_focus=False)
            with Vertical(id="--results"):
                yield PaletteList(classes="--visible")

    def on_mount(self) -> None:
        self.query_one(SearchIcon).icon = "›"  # many fonts have no magnifying glass

    def on_resize(self) -> None:
        self._show_matches()

    @on(Input.Changed)
    def _show_matches(self) -> None:
        """Lists what matches the title, the best first; then what contains the words in its name or help."""
        typed = self.query_one(CommandInput).value
        style = self.get_visual_style("command-palette--highlight", partial=True)
        matcher = Matcher(typed, match_style=style)
        scores = {one: matcher.match(one.title) if typed else 1 for one in self._commands}
        words = {one: f"/{one.slash} {one.help}".casefold() for one in self._commands}
        found = [one for one in self._commands if scores[one] or typed.casefold() in words[one]]
        found.sort(key=lambda one: -scores[one])
        rows = self.query_one(PaletteList).clear_options()
        titles = [matcher.highlight(one.title) if typed else Content(one.title) for one in found]
        rows.add_options([Option(self._row(*row), row[0].action) for row in zip(found, titles, strict=True)])
        rows.highlighted = 0 if found else None

    def _row(self, command: AppCommand, title: Content) -> Content:
        """One row: the title, what it does if there is room, and at the right its name and key."""
        width = min(MAX_COLUMNS, app_of(self).size.width) - FRAME_COLUMNS
        key = self._keys.get(command.action) or command.key
        slash = f"/{command.slash}" if command.slash else ""
        names = "  ".join(filter(None, (slash, key_name(key.partition(",")[0]) if key else "")))
        room = width - title.cell_length - len(names) - 2 * GAP_COLUMNS
        if room >= MIN_HELP_COLUMNS:
            about = Content.styled(command.help, "$text-muted").truncate(room, ellipsis=True)
            title = Content.assemble(title, " " * GAP_COLUMNS, about)
        return spread(title, Content.styled(names, "$text-muted"), width)

    def action_move(self, how: str) -> None:
        rows = self.query_one(PaletteList)
        if rows.scrollable_content_region:  # else it is not laid out yet, and Textual would crash
            getattr(rows, f"action_{how}")()

    @on(Input.Submitted)
    def _submit(self) -> None:
        self.query_one(PaletteList).action_select()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)
