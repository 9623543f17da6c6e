"""The command palette: the commands of the table, found by title, name or help."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, cast

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.command import (
    CommandInput,
    CommandList,
    CommandPalette,
    DiscoveryHit,
    Hit,
    Hits,
    Provider,
    SearchIcon,
)
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, LoadingIndicator
from textual.worker import Worker, WorkerError

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.tui.screens.overlay import spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import LOW_ROWS, key_name

HELP_MATCH_SCORE = 0.001
"""The score of a command whose title does not match, but its help does."""
MAX_COLUMNS = 80
FRAME_COLUMNS = 6
"""Columns of the border, the padding and the scrollbar."""
GAP_COLUMNS = 2
MIN_HELP_COLUMNS = 12


class CommandRunner(Protocol):
    """What the palette needs of the app."""

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys that the user changed, by action."""
        ...

    @property
    def recent_actions(self) -> Sequence[str]:
        """Commands that were run, by their action, the latest first."""
        ...

    def action_command(self, action: str, argument: str = "") -> None: ...


class TableProvider(Provider):
    """The commands of the table, those used last first."""

    async def discover(self) -> Hits:
        for command in _recent_first(self._runner.recent_actions):
            yield DiscoveryHit(
                self._row(command, Content(command.title)), self._doing(command), command.title
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in APP_COMMANDS:
            if (score := matcher.match(command.title)) > 0:
                row = self._row(command, matcher.highlight(command.title))
                yield Hit(score, row, self._doing(command), command.title)
            elif query.casefold() in f"/{command.slash} {command.help}".casefold():
                row = self._row(command, Content(command.title))
                yield Hit(HELP_MATCH_SCORE, row, self._doing(command), command.title)

    @property
    def _runner(self) -> "CommandRunner":
        return cast("CommandRunner", app_of(self.screen))

    def _doing(self, command: AppCommand) -> Callable[[], None]:
        runner = self._runner
        return lambda: runner.action_command(command.action)

    def _row(self, command: AppCommand, title: Content) -> Content:
        """One row: the title, what it does if there is room, and at the right its name and key."""
        width = min(MAX_COLUMNS, app_of(self.screen).size.width) - FRAME_COLUMNS
        key = self._runner.keys.get(command.action) or command.key
        slash = f"/{command.slash}" if command.slash else ""
        names = "  ".join(filter(None, (slash, key_name(key.partition(",")[0]) if key else "")))
        room = width - title.cell_length - len(names) - 2 * GAP_COLUMNS
        if room >= MIN_HELP_COLUMNS:
            about = Content.styled(command.help, "$text-muted").truncate(room, ellipsis=True)
            title = Content.assemble(title, " " * GAP_COLUMNS, about)
        return spread(title, Content.styled(names, "$text-muted"), width)


def _recent_first(recent: Sequence[str]) -> list[AppCommand]:
    place = {action: at for at, action in enumerate(recent)}
    return sorted(APP_COMMANDS, key=lambda command: place.get(command.action, len(place)))


class _Rows(CommandList):
    """The commands that were found. Textual crashes on a page key before the first layout, and on a click on
    a row that was removed."""

    def on_click(self, event: events.Click) -> None:
        number = event.style.meta.get("option")
        if number is not None and number >= self.option_count:
            event.prevent_default()

    def action_page_up(self) -> None:
        if self.scrollable_content_region:
            super().action_page_up()

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()


class TablePalette(CommandPalette):
    """Textual's palette, except that Enter waits for the list that belongs to the typed text."""

    DEFAULT_CSS = """
    TablePalette > Vertical { width: 80; max-width: 100%; }
    TablePalette SearchIcon { color: $text-muted; }
    TablePalette.-tiny > Vertical { margin-top: 0; }
    TablePalette.-tiny #--input { border: none; }
    TablePalette.-tiny #--input Label { margin-top: 0; }
    TablePalette.-tiny #--input CommandInput { border: none; padding: 0; height: 1; }
    TablePalette.-tiny CommandList { border: none; padding: 0; max-height: 7; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (LOW_ROWS, "-roomy")]

    def __init__(self) -> None:
        super().__init__()  # without an id: the previous one may not be removed yet

    def compose(self) -> ComposeResult:
        with Vertical(id="--container"):
            with Horizontal(id="--input"):
                yield SearchIcon()
                yield CommandInput(placeholder="Search for commands…", select_on_focus=False)
            with Vertical(id="--results"):
                yield _Rows()
                yield LoadingIndicator()

    def on_mount(self) -> None:
        self.query_one(SearchIcon).icon = "›"  # many fonts have no magnifying glass

    @on(Input.Changed)
    def _ignore_when_closed(self, event: Input.Changed) -> None:
        if not self.is_active:  # typed after the key that closed the palette
            event.prevent_default()
            event.stop()

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        event.prevent_default()
        event.stop()
        self.run_worker(self._run_when_listed([one for one in self.workers if one.node is self]))

    async def _run_when_listed(self, listing: "Sequence[Worker[object]]") -> None:
        for worker in listing:
            with suppress(WorkerError):
                await worker.wait()
        commands = self.query_one(CommandList)
        if self.is_active and commands.option_count:
            if commands.highlighted is None:
                commands.action_first()
            commands.action_select()

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()  # as all our screens do
