"""Very long replies of a stored conversation, cut into the parts that the transcript keeps of them."""

import asyncio
from collections.abc import Mapping, Sequence

from crushpy.core.messages import Message, Text
from crushpy.tui.items import ReplyItem
from crushpy.tui.transcript.render.reply_part import split_texts
from crushpy.util.pieces import LONG

Parts = Mapping[str, Sequence[ReplyItem]]
"""By the ids of their messages."""


async def cut_long_replies(history: Sequence[Message]) -> Parts:
    """In a thread: a reply of megabytes takes a third of a second, in which keys are heard."""
    long = [message for message in history if message.role == "assistant" and message.length > LONG]
    return await asyncio.to_thread(_cut, long) if long else {}


def _cut(messages: Sequence[Message]) -> Parts:
    cut: dict[str, Sequence[ReplyItem]] = {}
    for message in messages:
        texts = (part.text for part in message.parts if isinstance(part, Text))
        cut[message.id] = list(split_texts(texts, ReplyItem("", message_id=message.id)))
    return cut
