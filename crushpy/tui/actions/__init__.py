"""What each command of `core/app_commands.py` does: one function each, registered with `@performs`."""

from crushpy.tui.actions import context, overview, rewinding, sessions, settings
from crushpy.tui.actions.registry import ACTIONS

__all__ = ["ACTIONS", "context", "overview", "rewinding", "sessions", "settings"]
