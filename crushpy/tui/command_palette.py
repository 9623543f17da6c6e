"""What the command palette offers: the command table in its own order, found by title or by what it does."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol, cast

from textual import on
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input
from textual.worker import Worker, WorkerError

from crushpy.app_commands import APP_COMMANDS, AppCommand
from crushpy.tui.app_type import app_of
from crushpy.tui.widgets.key_bar import LOW, key_name

LAST = 0.001
"""The score of a command whose title does not match, but the words that explain it do."""


class CommandRunner(Protocol):
    """What the palette needs of the app."""

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys that the user changed, by action."""
        ...

    def action_command(self, action: str, argument: str = "") -> None: ...


class TableProvider(Provider):
    """Gives Textual's palette the commands of the table."""

    async def discover(self) -> Hits:
        for command in APP_COMMANDS:
            yield DiscoveryHit(command.title, self._doing(command), help=self._shown_help(command))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in APP_COMMANDS:
            help_text = self._help(command)
            if (score := matcher.match(command.title)) > 0:
                shown = self._shown_help(command)
                yield Hit(score, matcher.highlight(command.title), self._doing(command), help=shown)
            elif query.casefold() in f"/{command.slash} {help_text}".casefold():
                yield Hit(LAST, command.title, self._doing(command), help=self._shown_help(command))

    @property
    def _runner(self) -> CommandRunner:
        return cast("CommandRunner", app_of(self.screen))

    def _doing(self, command: AppCommand) -> Callable[[], None]:
        runner = self._runner
        return lambda: runner.action_command(command.action)

    def _shown_help(self, command: AppCommand) -> str | None:
        """Where there are few rows, each is a command."""
        return self._help(command) if app_of(self.screen).size.height >= LOW else None

    def _help(self, command: AppCommand) -> str:
        key = self._runner.keys.get(command.action) or command.key
        return f"{command.help} · {key_name(key)}" if key else command.help


class TablePalette(CommandPalette):
    """Textual's palette, but Enter takes from the list of what was typed, never from the one before."""

    DEFAULT_CSS = """
    TablePalette.-tiny > Vertical { margin-top: 0; }
    TablePalette.-tiny #--input { border: none; }
    TablePalette.-tiny #--input Label { margin-top: 0; }
    TablePalette.-tiny #--input CommandInput { border: none; padding: 0; height: 1; }
    TablePalette.-tiny CommandList { border: none; padding: 0; max-height: 7; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (LOW, "-roomy")]

    def __init__(self) -> None:
        super().__init__(id="--command-palette")
        self._listing: Worker[None] | None = None

    def _gather_commands(self, search_value: str) -> "Worker[None]":
        self._listing = super()._gather_commands(search_value)
        return self._listing

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        event.prevent_default()
        event.stop()
        self.run_worker(self._take_when_listed(self._listing))

    async def _take_when_listed(self, listing: "Worker[None] | None") -> None:
        if listing is not None:
            with suppress(WorkerError):
                await listing.wait()
        self._select_or_command()
