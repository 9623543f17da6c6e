"""Shows messages shortened or not at all. The stored message stays; the cut is a record beside it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from crushpy.core.messages import Cut, Image, Message, Part, Text, ToolResult

MIN_CHARS = 4_000
"""Results below this are not worth cutting at first."""
LEVELS = ((MIN_CHARS, 1_500, 500), (1_000, 400, 150), (300, 100, 50))
"""Which results are cut, by characters, and how much of head and tail is kept: as far down as it takes."""


SentState = Literal["", "cut", "dropped"]
"""How requests show a message: whole, shortened, or not at all."""


def cut_text(text: str, cut: Cut) -> str:
    gone = len(text) - cut.head - cut.tail
    if gone <= 0:
        return text
    tail = text[len(text) - cut.tail :] if cut.tail else ""
    return f"{text[: cut.head]}\n[... {gone} chars cut; recall {cut.message_id} ...]\n{tail}"


def image_line(image: Image, why: str = "cut") -> str:
    return f"[image {image.info}, {why}]"


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


def without_images(message: Message, why: str) -> Message:
    """The message for a model that cannot look at pictures: each is a line. Everything else is unchanged."""
    if not message.images:
        return message
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolResult():
                lines = "".join(f"\n{image_line(image, why)}" for image in part.images)
                parts.append(msgspec.structs.replace(part, text=part.text + lines, images=()))
            case Image():
                parts.append(Text(f"\n{image_line(part, why)}"))
            case _:
                parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts), tokens=0)


def apply_cuts(history: Iterable[Message], cuts: Mapping[str, Cut]) -> list[Message]:
    """The history as a request shows it: some messages shortened, some left out."""
    shown: list[Message] = []
    for message in history:
        match overlay(cuts, message.id):
            case "cut":
                shown.append(with_cut(message, cuts[message.id]))
            case "":
                shown.append(message)
            case _:
                pass
    return shown


def overlay(cuts: Mapping[str, Cut], message_id: str) -> Literal["", "cut", "drop"]:
    """How a message is shown: whole, shortened, or not at all."""
    cut = cuts.get(message_id)
    return "" if cut is None or cut.kind == "restore" else cut.kind


def sent_states(cuts: Iterable[Cut]) -> dict[str, SentState]:
    """The messages that are not sent whole, and how they are."""
    names: dict[str, SentState] = {"cut": "cut", "drop": "dropped"}
    return {cut.message_id: names[cut.kind] for cut in cuts if cut.kind in names}


def is_large(message: Message) -> bool:
    """A tool's message that is worth cutting."""
    result = message.result
    return result is not None and (len(result.text) > MIN_CHARS or bool(result.images))


def truncate_oldest(
    history: Sequence[Message], cuts: Mapping[str, Cut], *, enough: Callable[[Message, Message], bool]
) -> list[Cut]:
    """Cuts large results from the oldest on until `enough(before, after)` says so. Each is cut once only."""
    made: list[Cut] = []
    for message in history:
        if overlay(cuts, message.id) or not is_large(message):
            continue
        cut = Cut(message.id)
        made.append(cut)
        if enough(message, with_cut(message, cut)):
            break
    return made


def truncate_largest(messages: Sequence[Message], *, goal: int, size: Callable[[Message], int]) -> list[Cut]:
    """Cuts the largest results first until the messages' sizes add up to `goal` at most, or none is left.

    Where that is not enough they are cut further, and so are smaller ones: many small results weigh as much
    as a large one.
    """
    made: dict[str, Cut] = {}
    weights = {message.id: size(message) for message in messages}
    total = sum(weights.values())
    for least, head, tail in LEVELS:
        for message in sorted(messages, key=lambda message: -weights[message.id]):
            result = message.result
            if total <= goal:
                return list(made.values())
            if result is None or (len(result.text) <= least and not result.images):
                continue
            cut = Cut(message.id, head, tail)
            weight = size(with_cut(message, cut))
            if weight < weights[message.id]:
                total += weight - weights[message.id]
                weights[message.id] = weight
                made[message.id] = cut
    return list(made.values())
