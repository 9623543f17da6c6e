"""Commands about the app itself: help, copy, fold, leave."""

import msgspec

from crushpy.tui.app_type import app_of
from crushpy.tui.notify import tell
from crushpy.tui.screens.chat import ChatScreen


async def show_help(chat: ChatScreen, argument: str) -> None:
    from crushpy.tui.screens.help import HelpScreen

    keys = msgspec.structs.asdict(chat.conversation.settings.keys) if chat.conversation else {}
    await chat.show(HelpScreen(keys=keys))


async def copy_reply(chat: ChatScreen, argument: str) -> None:
    history = chat.conversation.history if chat.conversation else ()
    reply = next((one.text for one in reversed(history) if one.role == "assistant" and one.text.strip()), "")
    if not reply:
        chat.say("There is no reply to copy yet.", warning=True)
        return
    from crushpy.tui.terminal.clipboard import copy

    tell(chat, await copy(app_of(chat), reply))  # in passing: each time a line in the flow would be too much


async def fold_all(chat: ChatScreen, argument: str) -> None:
    chat.folded = not chat.folded
    chat.transcript.fold_all(chat.folded)


async def leave(chat: ChatScreen, argument: str) -> None:
    await chat.leave()
