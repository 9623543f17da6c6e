"""Histories a provider accepts, made from whatever is stored. Pure: looks at messages, touches nothing."""

from collections.abc import Iterable, Sequence

import msgspec

from crushpy.context.partition import asked_at
from crushpy.context.render import note_text, seed_text
from crushpy.core.messages import Message, Note, Part, Seed, Text, ToolResult

INTERRUPTED = (
    "Interrupted: this call had started when crushpy stopped. Its effects are unknown; "
    "check before repeating it."
)
NOT_RUN = "Not run: crushpy stopped before this call started."


def missing_results(messages: Sequence[Message], begun: Iterable[str]) -> list[ToolResult]:
    """What to add to a stored history so that every call has a result.

    `begun` are the ids of calls whose intent was stored: what they did before crushpy stopped is unknown.
    """
    started = set(begun)
    found: list[ToolResult] = []
    for message, answers in _units(messages):
        for call in message.calls:
            if call.id not in answers:
                text = INTERRUPTED if call.id in started else NOT_RUN
                found.append(ToolResult(call.id, call.name, text, is_error=True))
    return found


def well_formed(messages: Sequence[Message], *, begun: bool = False) -> tuple[Message, ...]:
    """The same history, valid for every provider.

    The first message is a user's; every call has exactly one result, directly after it and in the order of
    the calls, and what the user said between the two comes after them; neighbouring user messages are one;
    messages that hold nothing, or only thinking, are left out. `begun`: something goes before them, and they
    start with a reply.
    """
    valid: list[Message] = []
    for message, answers in _units(messages):
        if is_void(message):
            continue
        if message.role == "user":
            message = msgspec.structs.replace(message, parts=tuple(map(_as_text, message.parts)))  # noqa: PLW2901
            if valid and valid[-1].role == "user":
                valid[-1] = msgspec.structs.replace(valid[-1], parts=(*valid[-1].parts, *message.parts))
            else:
                valid.append(message)
            continue
        if not valid and not begun:
            valid.append(
                Message(
                    id=f"{message.id}-before", role="user", parts=(Text("(The conversation continues.)"),)
                )
            )
        valid.append(message)
        for call in message.calls:
            if call.id not in answers:
                missing = ToolResult(call.id, call.name, NOT_RUN, is_error=True)
                answers[call.id] = Message(id=f"{message.id}-{call.id}", role="tool", parts=(missing,))
            valid.append(answers[call.id])
    return tuple(valid)


def is_void(message: Message) -> bool:
    """It holds nothing, or is a reply that came to no words and no call: of no use to a model."""
    thought = message.role == "assistant" and not message.calls and not message.says_something
    return thought or not message.parts


def _as_text(part: Part) -> Part:
    """Our own parts as the text a provider takes."""
    match part:
        case Seed():
            return Text(seed_text(part))
        case Note():
            return Text(note_text(part))
        case _:
            return part


def _units(messages: Sequence[Message]) -> Iterable[tuple[Message, dict[str, Message]]]:
    """Each message that is not a tool's, with those that answer its calls, by call, wherever they stand."""
    answers: dict[int, dict[str, Message]] = {}
    for place, asked in asked_at(messages).items():
        if (result := messages[place].result) is not None:
            answers.setdefault(asked, {})[result.call_id] = messages[place]
    for place, message in enumerate(messages):
        if message.role != "tool":
            yield message, answers.get(place, {})
