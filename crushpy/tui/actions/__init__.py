"""The commands of `core/app_commands.py`: a method for each, named after its action."""

from crushpy.core.app_commands import BY_ACTION
from crushpy.tui.actions.command_group import CommandGroup
from crushpy.tui.actions.context import ContextCommands
from crushpy.tui.actions.overview import OverviewCommands
from crushpy.tui.actions.rewinding import RewindCommands
from crushpy.tui.actions.sessions import SessionCommands
from crushpy.tui.actions.settings import ExtensionCommands, SettingsCommands

GROUPS = (
    *(ContextCommands, ExtensionCommands, OverviewCommands),
    *(RewindCommands, SessionCommands, SettingsCommands),
)
ACTIONS: dict[str, type[CommandGroup]] = {
    name: group for group in GROUPS for name in vars(group) if name in BY_ACTION or name == "slash"
}
"""The group of each command, by the `action` of the command table."""
