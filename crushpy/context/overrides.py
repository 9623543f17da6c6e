"""Shows messages shortened or not at all. The stored message stays; the override is a record beside it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from crushpy.core.messages import Image, Message, MessageOverride, Overrides, Part, Seed, Text, ToolResult

_seed = msgspec.json.Decoder(Seed)
MIN_CHARS = 4_000
"""Results below this are not worth shortening at first."""
LEVELS = ((MIN_CHARS, 1_500, 500), (1_000, 400, 150), (300, 100, 50))
"""Which results are shortened, by characters, and how much of head and tail is kept; tried in this order."""


SentState = Literal["", "shortened", "dropped"]
"""How requests show a message: whole, shortened, or not at all."""
_STATES: dict[str, SentState] = {
    **dict.fromkeys(("fit", "shorten"), "shortened"),
    **dict.fromkeys(("drop", "remove", "withdraw"), "dropped"),
}
EDITS = ("shorten", "drop", "remove", "withdraw")
"""What the user did. It also applies to everything that is derived from the message."""
REMOVED, BY_USER = "[removed by the user]", "by the user"
"""`BY_USER` is in every mark of an edit, also in marks that an earlier version has stored."""


def shorten_text(text: str, override: MessageOverride) -> str:
    gone = len(text) - override.head - override.tail
    if gone <= 0:
        return text
    tail = text[len(text) - override.tail :] if override.tail else ""
    what = f"{gone} chars truncated; recall {override.message_id}"
    what = f"shortened {BY_USER}" if override.kind == "shorten" else what
    return f"{text[: override.head]}\n[... {what} ...]\n{tail}"


def image_line(image: Image, why: str = "left out") -> str:
    return f"[image {image.info}, {why}]"


def apply_override(message: Message, override: MessageOverride) -> Message:
    """The message as a request shows it. Status and ids are unchanged; images become a line each."""
    if override.kind == "renew":
        return msgspec.structs.replace(message, parts=(_seed.decode(override.text),), tokens=0)
    if override.kind == "remove":
        return msgspec.structs.replace(message, parts=(Text(REMOVED),), tokens=0)
    return _rewritten(message, lambda text: shorten_text(text, override), "left out")


def without_images(message: Message, why: str) -> Message:
    """The message for a model that cannot look at pictures: each is a line. Everything else is unchanged."""
    return _rewritten(message, lambda text: text, why) if message.images else message


def _rewritten(message: Message, shorten: Callable[[str], str], why: str) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolResult():
                lines = "".join(f"\n{image_line(image, why)}" for image in part.images)
                parts.append(msgspec.structs.replace(part, text=shorten(part.text) + lines, images=()))
            case Image():
                parts.append(Text(f"\n{image_line(part, why)}"))
            case Text():
                parts.append(msgspec.structs.replace(part, text=shorten(part.text)))
            case _:
                parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts), tokens=0)


def apply_overrides(history: Iterable[Message], overrides: Overrides) -> list[Message]:
    """The history as a request shows it: some messages shortened, some left out."""
    shown: list[Message] = []
    for message in history:
        override = overrides.get(message.id)
        match override.kind if override else "":
            case "fit" | "shorten" | "remove" | "renew":
                shown.append(apply_override(message, overrides[message.id]))
            case "drop" | "withdraw":
                pass
            case _:
                shown.append(message)
    return shown


def by_message(overrides: Iterable[MessageOverride]) -> dict[str, MessageOverride]:
    """The overrides by the id of their message; a later one replaces an earlier one."""
    return {override.message_id: override for override in overrides}


def sent_state(overrides: Overrides, message_id: str) -> SentState:
    override = overrides.get(message_id)
    return _STATES.get(override.kind, "") if override else ""


def users_edits(overrides: Iterable[MessageOverride]) -> dict[str, MessageOverride]:
    """Those that the user made, by the id of their message; without those restored."""
    return {key: override for key, override in by_message(overrides).items() if override.kind in EDITS}


def has_outdated_summary(history: Sequence[Message], overrides: Overrides) -> bool:
    """Whether the user edited a message before this history, which its summary was written from."""
    ids = {message.id for message in history}
    return any(key not in ids and override.kind in EDITS for key, override in overrides.items())


def sent_states(overrides: Iterable[MessageOverride]) -> dict[str, SentState]:
    """The messages that are not sent whole, and how they are."""
    latest = by_message(overrides)
    return {key: _STATES[override.kind] for key, override in latest.items() if override.kind in _STATES}


def is_large(message: Message) -> bool:
    """A tool's message that is worth shortening."""
    result = message.result
    return result is not None and (len(result.text) > MIN_CHARS or bool(result.images))


def shorten_oldest(
    history: Sequence[Message], overrides: Overrides, *, enough: Callable[[Message, Message], bool]
) -> list[MessageOverride]:
    """Shortens large results from the oldest on until `enough(before, after)` says so, each once only."""
    made: list[MessageOverride] = []
    for message in history:
        if sent_state(overrides, message.id) or not is_large(message):
            continue
        override = MessageOverride(message.id)
        made.append(override)
        if enough(message, apply_override(message, override)):
            break
    return made


def shorten_largest(
    messages: Sequence[Message], *, goal: int, size: Callable[[Message], int]
) -> list[MessageOverride]:
    """Shortens the largest results first until the messages' sizes add up to `goal` at most, or none is left.

    If that is not enough they are shortened further, and so are smaller ones: many small results weigh as
    much as a large one.
    """
    made: dict[str, MessageOverride] = {}
    weights = {message.id: size(message) for message in messages}
    total = sum(weights.values())
    for least, head, tail in LEVELS:
        for message in sorted(messages, key=lambda message: -weights[message.id]):
            result = message.result
            if total <= goal:
                return list(made.values())
            if result is None or (len(result.text) <= least and not result.images):
                continue
            override = MessageOverride(message.id, head, tail)
            weight = size(apply_override(message, override))
            if weight < weights[message.id]:
                total += weight - weights[message.id]
                weights[message.id] = weight
                made[message.id] = override
    return list(made.values())
