"""The app's command table (`app_commands.json`): the source of palette, slash commands, keys, help and docs.

It is below the settings, because `keys.<action>` is a setting of every command. The actions are in
`tui/actions`.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from crushpy.core.messages import Data


class CommandValue(Data, frozen=True):
    """One of the values that a command sets."""

    value: str
    """As it is stored."""
    title: str
    """Typed in lower case."""
    help: str = ""


def next_value(values: Sequence[CommandValue], current: str) -> str:
    """The value after the current one, or the first one."""
    stored = [value.value for value in values]
    return stored[(stored.index(current) + 1) % len(stored)]


class AppCommand(Data, frozen=True):
    """One thing a user can do. `action` names the method in `tui/actions` that does it."""

    title: str
    action: str
    help: str
    slash: str = ""
    """Without the slash; empty if it cannot be typed."""
    takes: str = ""
    """What follows it, as a hint; in brackets if it may be left out: [focus words]."""
    key: str = ""
    """Textual's name of a key, changed by `keys.<action>` in the settings."""
    aliases: tuple[str, ...] = ()
    """Other names for `slash`, known from other agents."""
    in_editor: bool = False
    """Whether `crushpy acp` offers it in an editor's thread also. Its help must be true there as well."""
    values: tuple[CommandValue, ...] = ()
    """What it sets, if that is one of a few values."""

    @property
    def argument(self) -> str:
        """What follows it: `takes`, or one of the values."""
        names = "|".join(value.title.lower() for value in self.values)
        return f"[{names}]" if names else self.takes

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def slashes(self) -> tuple[str, ...]:
        """Everything that may be typed for it, without the slash."""
        return (self.slash, *self.aliases) if self.slash else ()


# JSON, since every start reads it: TOML would take milliseconds.
_TABLE = Path(__file__).with_name("app_commands.json").read_bytes()
COMMAND_GROUPS = msgspec.json.decode(_TABLE, type=dict[str, tuple[AppCommand, ...]])
"""The commands as the palette groups them; earlier ones come first in the menu of slash commands."""
APP_COMMANDS = tuple(command for group in COMMAND_GROUPS.values() for command in group)

BY_ACTION = {command.action: command for command in APP_COMMANDS}
METHODS = BY_ACTION["select_compaction"].values
EFFORTS = BY_ACTION["effort"].values
MODE_VALUES = BY_ACTION["switch_mode"].values
FORMER_NAMES = {"undo-boundary": "undo-compaction", "lineage": "tree", "recall": "search"}
"""Slash commands that were called differently: errors name the new one. `keys` has them with underscores."""


def by_slash(name: str) -> AppCommand | None:
    return next((command for command in APP_COMMANDS if name in command.slashes), None)
