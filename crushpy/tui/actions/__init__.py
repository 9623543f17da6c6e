"""The commands of `core/app_commands.py`: a function for each, registered with `@performs`."""

from crushpy.tui.actions import context, overview, rewinding, sessions, settings
from crushpy.tui.actions.action_registry import ACTIONS

__all__ = ["ACTIONS", "context", "overview", "rewinding", "sessions", "settings"]
