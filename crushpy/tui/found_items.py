"""Finds the item of a transcript that shows a stored message."""

from collections.abc import Sequence

from crushpy.core.messages import Data, Message, Seed
from crushpy.tui.items import BoundaryItem, ReplyItem, ToolItem, TranscriptItem, UserItem, source_text


class FoundPlace(Data, frozen=True):
    """A message that was found, and the words it was found by."""

    session_id: str
    message_id: str
    words: tuple[str, ...] = ()


def item_of(message: Message, items: Sequence[tuple[int, str, TranscriptItem]], words: Sequence[str]) -> int:
    """The key of the item that shows `message`, best one with the `words` in it; -1 where none does.

    `items`: key, id of the message, and the item itself, in order.
    """
    shown = [(key, item) for key, message_id, item in items if _shows(message, message_id, item)]
    wanted = [word.casefold() for word in words]

    def rank(pair: tuple[int, TranscriptItem]) -> tuple[int, bool]:
        text = source_text(pair[1]).casefold()
        return -sum(word in text for word in wanted), not isinstance(pair[1], UserItem | ReplyItem)

    return min(shown, key=rank)[0] if shown else -1


def _shows(message: Message, message_id: str, item: TranscriptItem) -> bool:
    if message.result is not None:
        return isinstance(item, ToolItem) and item.id == message.result.call_id
    if any(isinstance(part, Seed) for part in message.parts):
        return isinstance(item, BoundaryItem)
    return message_id == message.id
