"""Commands about conversations: new, resume, session tree, search, export."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import counted
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation
from crushpy.storage.records import SessionBusy
from crushpy.tui.actions.action_registry import performs
from crushpy.tui.actions.context import undo_last_boundary
from crushpy.tui.screens.choose import Choice, ChooseScreen

if TYPE_CHECKING:
    from crushpy.tui.screens.chat_host import ChatHost
    from crushpy.tui.transcript_presenter import FoundPlace


def refuse_while_busy(chat: "ChatHost") -> bool:
    """Whether a turn is running, which the user is told."""
    busy = chat.conversation is not None and chat.conversation.busy
    if busy:
        chat.say("The agent is working. Press Esc to interrupt it first.", warning=True)
    return busy


async def go_over(chat: "ChatHost", options: StartOptions) -> None:
    """Switches to another conversation, unless this one is busy. Queued prompts return to the prompt."""
    if chat.own is not None and chat.own.running:
        chat.say("A command of yours is running. Press Esc to stop it first.", warning=True)
        return
    if refuse_while_busy(chat):
        return
    queued = chat.conversation.queue if chat.conversation is not None else ()
    try:
        await chat.replace_conversation(options)
    except SessionBusy as error:
        await ask_elsewhere(chat, options, error)
        return
    for prompt in reversed(queued):
        chat.take_back(prompt)
    if queued:
        which = "A queued prompt was" if len(queued) == 1 else f"{len(queued)} queued prompts were"
        chat.say(f"{which} not sent. The text is in the prompt now.", warning=True)


def new_options(chat: "ChatHost") -> StartOptions:
    """The options of this run for a new conversation."""
    return msgspec.structs.replace(
        chat.options,
        prompt="",
        pick=False,
        session="",
        resume_latest=False,
        fork=False,
        at="",
        compaction="",
    )


async def resume(chat: "ChatHost", session_id: str) -> None:
    await go_over(chat, msgspec.structs.replace(new_options(chat), session=session_id, model=""))


async def ask_elsewhere(chat: "ChatHost", options: StartOptions, error: SessionBusy) -> None:
    """Offers to read or fork a conversation that another process holds; until then this one stays open."""
    choices = [
        Choice("read", "Read it", "nothing is changed"),
        Choice("fork", "Fork it", "continue in a branch of your own"),
        Choice("cancel", "Cancel", "stay here"),
    ]
    title = "This conversation is open elsewhere"
    chosen = await chat.show(ChooseScreen(title, choices, hint=f"{error}".partition("\n")[0]))
    if chosen == "fork":
        await go_over(chat, msgspec.structs.replace(options, fork=True))
    elif chosen == "read" and chat.conversation is not None:
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        going_on = await chat.show(SessionReaderScreen(chat.conversation.sessions, error.session_id))
        if going_on:
            await resume(chat, going_on)


async def start_elsewhere(chat: "ChatHost", options: StartOptions, error: SessionBusy) -> None:
    """The same at start-up, with a new conversation in the meantime."""
    await go_over(chat, new_options(chat))
    await ask_elsewhere(chat, options, error)


@performs("new_conversation")
async def begin_conversation(chat: "ChatHost", argument: str) -> None:
    """Plan mode is kept; edits were allowed only for the previous conversation."""
    planning = chat.conversation is not None and chat.conversation.mode == "plan"
    options = new_options(chat)
    await go_over(chat, msgspec.structs.replace(options, mode="plan") if planning else options)


async def fork_here(chat: "ChatHost", message_id: str) -> None:
    """Continues in a branch that ends at a message of the open conversation."""
    conversation = chat.conversation
    if conversation is None or not message_id:
        chat.say("This message is not stored, so no branch can end here.", warning=True)
        return
    if refuse_while_busy(chat):
        return
    before = conversation.info.id
    try:
        made = await conversation.sessions.fork(before, message_id)
    except CrushpyError as error:
        chat.say(str(error), warning=True)
        return
    await resume(chat, made.id)
    chat.say(f"This is a branch that ends here. Session {before} and your files are unchanged (/lineage).")


@performs("sessions")
async def pick_session(chat: "ChatHost", argument: str) -> None:
    from crushpy.tui.screens.sessions import SessionsScreen

    chosen = await chat.show(SessionsScreen(chat.open_conversation.sessions, chat.options.cwd))
    if chosen:
        await resume(chat, chosen)


@performs("lineage")
async def show_session_tree(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    from crushpy.tui.screens.session_tree import SessionTreeScreen

    chosen = await chat.show(SessionTreeScreen(conversation.sessions, conversation.info.id))
    if chosen is None:
        return
    if chosen.action == "undo":
        await undo_last_boundary(chat, "")
    else:
        await resume(chat, chosen.session_id)


@performs("search")
async def search_messages(chat: "ChatHost", argument: str) -> None:
    from crushpy.tui.screens.message_search import SearchScreen

    screen = SearchScreen(chat.open_conversation.sessions, chat.options.cwd, argument.strip())
    found = await chat.show(screen)
    if found is not None:
        await show_place(chat, found)


async def show_place(chat: "ChatHost", place: "FoundPlace") -> None:
    """Shows a message in the chat if it is there, otherwise in its session, to read."""
    conversation = chat.open_conversation
    if chat.reveal(place):
        return
    from crushpy.tui.screens.session_reader import SessionReaderScreen

    going_on = await chat.show(SessionReaderScreen(conversation.sessions, place.session_id, place))
    if going_on and going_on != conversation.info.id:
        await resume(chat, going_on)


@performs("export")
async def export_conversation(chat: "ChatHost", argument: str) -> None:
    conversation = chat.conversation
    if conversation is None or not conversation.history:
        chat.say("There is nothing to export yet.", warning=True)
        return
    usual = f"crushpy-{conversation.info.id}.md"
    file = Path(chat.options.cwd) / _from_home(Path(argument.strip() or usual))
    count = await _export(chat, conversation, file, usual)
    if count is None:
        chat.say(f"Nothing was written: {file} is unchanged. Name another file.")
    else:
        chat.say(f"{counted(count, 'message')} exported to {file}. Secrets are redacted.")


async def _export(chat: "ChatHost", conversation: Conversation, file: Path, usual: str) -> int | None:
    """The number of messages written; None if the user keeps the existing file."""
    try:
        if file.is_dir():
            way_out = f"Name a file in it: /export {_short(chat, file / usual)}"
            raise CrushpyError(f"{file} is a folder. {way_out}")
        if file.exists() and not file.is_file():
            raise CrushpyError(f"{file} is not a regular file. Name another one.")
        replace = file.name == usual or not file.exists() or await _wants_it_replaced(chat, file)
        return await conversation.sessions.export(conversation.info.id, file) if replace else None
    except FileNotFoundError:
        folder = file.parent
        raise CrushpyError(f"{folder} does not exist. Create it first, or name a file elsewhere.") from None
    except OSError as error:
        raise CrushpyError(f"{file} cannot be written: {error.strerror}. Name another file.") from None


async def _wants_it_replaced(chat: "ChatHost", file: Path) -> bool:
    choices = [
        Choice("keep", "Keep it", "nothing is written"),
        Choice("replace", "Replace it", "its content is lost"),
    ]
    return await chat.show(ChooseScreen(f"{file.name} already exists", choices, hint=str(file))) == "replace"


def _short(chat: "ChatHost", file: Path) -> Path:
    """The path as it can be typed in this folder."""
    return file.relative_to(chat.options.cwd) if file.is_relative_to(chat.options.cwd) else file


def _from_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no such user: an ordinary name
        return path
