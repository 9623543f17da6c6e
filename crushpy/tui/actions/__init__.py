"""What each command of the table does. One function each: `async def name(chat, argument)`."""

from collections.abc import Awaitable, Callable

from crushpy.tui.actions import context, general, sessions, settings
from crushpy.tui.screens.chat import ChatScreen

Action = Callable[[ChatScreen, str], Awaitable[None]]

ACTIONS: dict[str, Action] = {
    "select_compaction": context.select_compaction,
    "compact": context.compact,
    "handoff": context.handoff,
    "edit_template": context.edit_template,
    "undo_boundary": context.undo_boundary,
    "inspect": context.inspect,
    "lineage": sessions.lineage,
    "new_conversation": sessions.new_conversation,
    "sessions": sessions.sessions,
    "search": sessions.search,
    "export": sessions.export,
    "switch_model": settings.switch_model,
    "effort": settings.effort,
    "toggle_yolo": settings.toggle_yolo,
    "theme": settings.theme,
    "connect": settings.connect,
    "trust": settings.trust,
    "copy_reply": general.copy_reply,
    "fold_all": general.fold_all,
    "help": general.show_help,
    "quit": general.leave,
}
