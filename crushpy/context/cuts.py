"""Cuts large tool results out of a request. The stored message stays; the cut is a record beside it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from crushpy.messages import Cut, Image, Message, Part, Text, ToolResult

MIN_CHARS = 4_000
"""Results below this are not worth cutting."""


def cut_text(text: str, cut: Cut) -> str:
    gone = len(text) - cut.head - cut.tail
    if gone <= 0:
        return text
    tail = text[len(text) - cut.tail :] if cut.tail else ""
    return f"{text[: cut.head]}\n[... {gone} chars cut; recall {cut.message_id} ...]\n{tail}"


def image_line(image: Image) -> str:
    return f"[image {image.media_type}, {len(image.data) * 3 // 4:,} bytes, cut]"


def with_cut(message: Message, cut: Cut) -> Message:
    """The message as a request shows it. Status and ids are unchanged; images become a line each."""
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolResult():
                lines = "".join(f"\n{image_line(image)}" for image in part.images)
                text = cut_text(part.text, cut) + lines
                parts.append(msgspec.structs.replace(part, text=text, images=()))
            case Image():
                parts.append(Text(image_line(part)))
            case Text():
                parts.append(Text(cut_text(part.text, cut)))
            case _:
                parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts), tokens=0)


def apply_cuts(history: Iterable[Message], cuts: Mapping[str, Cut]) -> list[Message]:
    return [with_cut(message, cuts[message.id]) if message.id in cuts else message for message in history]


def is_large(message: Message) -> bool:
    """A tool's message that is worth cutting."""
    result = message.result
    return result is not None and (len(result.text) > MIN_CHARS or bool(result.images))


def cut_oldest(
    history: Sequence[Message], cuts: Mapping[str, Cut], *, enough: Callable[[Message, Message], bool]
) -> list[Cut]:
    """Cuts large results from the oldest on until `enough(before, after)` says so. Each is cut once only."""
    made: list[Cut] = []
    for message in history:
        if message.id in cuts or not is_large(message):
            continue
        cut = Cut(message.id)
        made.append(cut)
        if enough(message, with_cut(message, cut)):
            break
    return made


def cut_largest(messages: Sequence[Message], *, goal: int, size: Callable[[Message], int]) -> list[Cut]:
    """Cuts the largest results first until the messages' sizes add up to `goal` at most, or none is left."""
    made: list[Cut] = []
    total = sum(size(message) for message in messages)
    for message in sorted((m for m in messages if is_large(m)), key=size, reverse=True):
        if total <= goal:
            break
        cut = Cut(message.id)
        total += size(with_cut(message, cut)) - size(message)
        made.append(cut)
    return made
