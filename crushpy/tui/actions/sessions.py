"""Commands about conversations: new, resume, lineage, search, export."""

from pathlib import Path

import msgspec

from crushpy.tui import Options
from crushpy.tui.screens.chat import ChatScreen


async def new_conversation(chat: ChatScreen, argument: str) -> None:
    await chat.replace_conversation(_fresh(chat))


def _fresh(chat: ChatScreen, **changes: object) -> Options:
    model = chat.conversation.info.model if chat.conversation else chat.options.model
    empty = {"session": "", "resume_latest": False, "fork": False, "compaction": "", "model": model}
    return msgspec.structs.replace(chat.options, **{**empty, **changes})


async def resume(chat: ChatScreen, session_id: str) -> None:
    await chat.replace_conversation(_fresh(chat, session=session_id, model=""))


async def sessions(chat: ChatScreen, argument: str) -> None:
    if chat.conversation is None:
        return
    from crushpy.tui.screens.sessions import SessionsScreen

    chosen = await chat.show(SessionsScreen(chat.conversation.library, chat.options.cwd))
    if chosen:
        await resume(chat, chosen)


async def lineage(chat: ChatScreen, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None:
        return
    from crushpy.tui.actions.context import undo_boundary
    from crushpy.tui.screens.lineage import LineageScreen

    chosen = await chat.show(LineageScreen(conversation.library, conversation.info.id))
    if chosen is None:
        return
    if chosen.action == "undo":
        await undo_boundary(chat, "")
    else:
        await resume(chat, chosen.session_id)


async def search(chat: ChatScreen, argument: str) -> None:
    if chat.conversation is None:
        return
    from crushpy.tui.screens.search import SearchScreen

    screen = SearchScreen(chat.conversation.library, chat.options.cwd, argument.strip())
    found = await chat.show(screen)
    if found is not None:
        await resume(chat, found[0])


async def export(chat: ChatScreen, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None or not conversation.history:
        chat.say("There is nothing to export yet.", warning=True)
        return
    file = Path(chat.options.cwd) / (argument.strip() or f"crushpy-{conversation.info.id}.md")
    try:
        count = await conversation.library.export(conversation.info.id, file)
    except OSError as error:
        chat.say(f"{file} could not be written: {error.strerror}", warning=True)
        return
    chat.say(f"{count} messages are in {file}. Secrets are redacted.")
