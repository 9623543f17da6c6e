"""Goes from one conversation to another; where that one is open elsewhere: read it, fork it, or stay."""

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.start_options import StartOptions
from crushpy.storage.records import SessionBusy
from crushpy.tui.actions.host import CommandHost
from crushpy.tui.screens.choose import Choice, ChooseScreen


async def go_over(chat: CommandHost, options: StartOptions) -> None:
    """Goes over to another conversation, unless something runs in this one. Prompts not sent come along."""
    if chat.own is not None and chat.own.running:
        chat.say("A command of yours is running. Esc stops it first.", warning=True)
        return
    conversation = chat.conversation
    if conversation is not None and conversation.busy:
        chat.say("The agent is working. Esc interrupts it first.", warning=True)
        return
    queued = conversation.queue if conversation is not None else ()
    try:
        await chat.replace_conversation(options)
    except CrushpyError as error:
        if not is_open_elsewhere(error):
            raise
        await ask_elsewhere(chat, options, error)
        return
    for prompt in reversed(queued):
        chat.take_back(prompt)
    if queued:
        which = "A queued prompt was" if len(queued) == 1 else f"{len(queued)} queued prompts were"
        chat.say(f"{which} not sent; what was queued is in the prompt now.", warning=True)


def fresh(chat: CommandHost, **changes: object) -> StartOptions:
    model = chat.options.model
    empty: dict[str, object] = {
        "prompt": "",
        "pick": False,
        "session": "",
        "resume_latest": False,
        "fork": False,
        "at": "",
        "compaction": "",
        "model": model,
    }
    return msgspec.structs.replace(chat.options, **{**empty, **changes})


async def resume(chat: CommandHost, session_id: str) -> None:
    await go_over(chat, fresh(chat, session=session_id, model=""))


def is_open_elsewhere(error: Exception) -> bool:
    """Another process works on the conversation that was asked for."""
    return isinstance(error, SessionBusy)


async def ask_elsewhere(chat: CommandHost, options: StartOptions, error: Exception) -> None:
    """Offers what can be done without writing to it. The conversation at hand stays as it is until then."""
    choices = [
        Choice("read", "Read it", "nothing is changed"),
        Choice("fork", "Fork it", "go on in a branch of your own"),
        Choice("cancel", "Cancel", "stay here"),
    ]
    title = "This conversation is open elsewhere"
    chosen = await chat.show(ChooseScreen(title, choices, hint=f"{error}".partition("\n")[0]))
    if chosen == "fork":
        await go_over(chat, msgspec.structs.replace(options, fork=True))
    elif chosen == "read" and chat.conversation is not None and isinstance(error, SessionBusy):
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        going_on = await chat.show(SessionReaderScreen(chat.conversation.library, error.session_id))
        if going_on:
            await resume(chat, going_on)


async def start_elsewhere(chat: CommandHost, options: StartOptions, error: Exception) -> None:
    """The same at the start: what is at hand then is a new conversation."""
    await go_over(chat, fresh(chat))
    await ask_elsewhere(chat, options, error)
