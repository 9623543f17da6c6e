"""What the command palette offers: the command table in its own order, found by title or by what it does."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from textual import on
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input
from textual.worker import Worker, WorkerError

from crushpy.tui.app_type import app_of
from crushpy.tui.commands import COMMANDS, Command
from crushpy.tui.widgets.keybar import key_name

if TYPE_CHECKING:
    from crushpy.tui.app import CrushpyApp

LAST = 0.001
"""The score of a command whose title does not match, but the words that explain it do."""


class TableProvider(Provider):
    """Gives Textual's palette the commands of the table."""

    async def discover(self) -> Hits:
        for command in COMMANDS:
            yield DiscoveryHit(command.title, self._doing(command), help=self._help(command))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS:
            help_text = self._help(command)
            if (score := matcher.match(command.title)) > 0:
                yield Hit(score, matcher.highlight(command.title), self._doing(command), help=help_text)
            elif query.casefold() in f"/{command.slash} {help_text}".casefold():
                yield Hit(LAST, command.title, self._doing(command), help=help_text)

    def _doing(self, command: Command) -> Callable[[], None]:
        app = cast("CrushpyApp", app_of(self.screen))
        return lambda: app.action_command(command.action)

    def _help(self, command: Command) -> str:
        key = cast("CrushpyApp", app_of(self.screen)).keys.get(command.action) or command.key
        return f"{command.help} · {key_name(key)}" if key else command.help


class TablePalette(CommandPalette):
    """Textual's palette, but Enter takes from the list of what was typed, never from the one before."""

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
