"""What the command palette offers: the command table in its own order, found by title or by what it does."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from crushpy.tui.commands import COMMANDS, Command
from crushpy.tui.typed import app_of
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
