"""What each command of the table does: one function each, marked with `@performs`."""

from crushpy.tui.actions import context, general, overview, pins, rewinding, sessions, settings
from crushpy.tui.actions.host import ACTIONS

__all__ = ["ACTIONS", "context", "general", "overview", "pins", "rewinding", "sessions", "settings"]
