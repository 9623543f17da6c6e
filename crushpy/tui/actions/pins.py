"""Commands about pins: what every fresh start of the conversation carries word for word."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Message
from crushpy.tui.actions.host import CommandHost, performs
from crushpy.tui.items import ReplyItem, ToolItem, TranscriptItem, UserItem

if TYPE_CHECKING:
    from crushpy.engine.compaction.pin_service import PinService, PinView

SHOWN = 600
"""Characters of a pin that are shown before it is unpinned."""
HOW = "/pin TEXT pins words, /pin @FILE a file, and p a message in the transcript (Tab) or the inspector."


@performs("pin")
async def pin_something(chat: CommandHost, argument: str) -> None:
    """Pins a sentence, or a file where an @ stands before its name."""
    wanted = argument.strip()
    if not wanted:
        chat.say(f"Say what to pin. {HOW}", warning=True)
    elif wanted.startswith("@"):
        await _pin(chat, lambda board: board.add_file(wanted[1:].strip().strip("'\"")))
    else:
        await _pin(chat, lambda board: board.add_text(wanted))


async def pin_item(chat: CommandHost, item: TranscriptItem) -> None:
    """Pins the message that an item of the transcript shows."""
    await _pin(chat, lambda board: board.add_shown(shows(item)))


def shows(item: TranscriptItem) -> Callable[[Message], bool]:
    """Tells the message that an item shows; messages that say the same are the same pin."""
    match item:
        case UserItem():
            return lambda message: message.role == "user" and message.text == item.text
        case ReplyItem():
            return lambda message: message.role == "assistant" and message.text.strip() == item.text.strip()
        case ToolItem():
            return lambda message: message.result is not None and message.result.call_id == item.id
        case _:
            return lambda message: False


async def _pin(chat: CommandHost, add: "Callable[[PinService], Awaitable[PinView]]") -> None:
    if chat.conversation is None:
        return
    warning, text = await pinned_words(chat.conversation.pins, add)
    chat.say(text, warning=warning)


async def pinned_words(
    board: "PinService", add: "Callable[[PinService], Awaitable[PinView]]"
) -> tuple[bool, str]:
    """Pins something; whether it went wrong, and what to tell."""
    try:
        added, listed = await add(board), await board.listed()
    except CrushpyError as error:
        return True, f"Not pinned: {error}"
    what = added.name or "your words"
    taken = f"Pins take {listed.tokens:,} of {listed.limit:,} tokens (/pins)."
    return False, f"Pinned as {added.number}: {what}. Every fresh start carries it. {taken}"


@performs("pins")
async def show_pins(chat: CommandHost, argument: str) -> None:
    """Lists the pins; one that is taken can be read and unpinned."""
    if chat.conversation is None:
        return
    from crushpy.tui.screens.choose import Choice, ChooseScreen

    board = chat.conversation.pins
    await chat.conversation.context.count_exactly()
    listed = await board.listed()
    if not listed.pins:
        chat.say(f"Nothing is pinned. {HOW}")
        return
    choices = [Choice(str(pin.number), _title(pin), f"{pin.tokens:,} tokens") for pin in listed.pins]
    title = f"Pins: {listed.tokens:,} of {listed.limit:,} tokens"
    taken = await chat.show(ChooseScreen(title, choices, hint="Enter shows one, and unpins it if you like."))
    pin = next((one for one in listed.pins if str(one.number) == taken), None)
    if pin is None or not await _wants_unpinned(chat, pin):
        return
    try:
        await board.remove(pin.number)
    except CrushpyError as error:
        chat.say(str(error), warning=True)
        return
    chat.say(f"Unpinned {pin.number}: fresh starts carry it no more.")


async def _wants_unpinned(chat: CommandHost, pin: "PinView") -> bool:
    from crushpy.tui.screens.choose import Choice, ChooseScreen

    choices = [Choice("keep", "Keep it"), Choice("unpin", "Unpin it", "fresh starts carry it no more")]
    text = pin.text if len(pin.text) <= SHOWN else pin.text[:SHOWN] + "…"
    return await chat.show(ChooseScreen(_title(pin), choices, hint=text)) == "unpin"


def _title(pin: "PinView") -> str:
    words = f"({pin.problem})" if pin.problem else pin.text
    said = " ".join(filter(None, (pin.name, words)))
    line = " ".join(said.split())
    return f"{pin.number} {pin.kind}: {line if len(line) <= 80 else line[:79] + '…'}"
