"""Where a reply's signed parts stood among its words and calls, so that they go back to the same place. Pure.

A stored reply is its thinking, its text and its calls, in this order, and nearly always that is how it came.
A part that came later carries a note of how much of the text and how many calls went before it.
"""

from collections.abc import Iterator
from typing import cast

from crushpy.core.messages import Json, Message, Thinking, ToolCall
from crushpy.llm.protocol import Request

AFTER = "after"


def noted(part: Json, text: int, calls: int) -> Json:
    """`part` with a note that `text` characters and `calls` calls came before it, if any did."""
    return {**part, AFTER: [text, calls]} if text or calls else part


def in_order(message: Message, kinds: frozenset[str]) -> Iterator[str | ToolCall | Json]:
    """A reply's texts, calls and signed parts of these kinds, in the order in which they came."""
    text, calls = message.text, message.calls
    written, called = 0, 0
    for part in message.parts:
        for block in part.opaque if isinstance(part, Thinking) else ():
            if block.get("type") not in kinds:
                continue
            upto, count = _place(block)
            if upto > written:
                yield text[written:upto]
                written = upto
            yield from calls[called:count]
            called = max(called, count)
            yield {key: value for key, value in block.items() if key != AFTER}
    if text[written:]:
        yield text[written:]
    yield from calls[called:]


def goes_back(message: Message, request: Request) -> bool:
    """Whether the signed parts of a reply are sent: only the model that made them takes them."""
    return request.return_thinking and message.model == request.model


def sends_signed_parts(request: Request) -> bool:
    return any(
        isinstance(part, Thinking | ToolCall) and part.opaque
        for message in request.messages
        if goes_back(message, request)
        for part in message.parts
    )


def _place(block: Json) -> tuple[int, int]:
    match block.get(AFTER):
        case [int(text), int(calls)]:
            return text, calls
        case _:
            return 0, 0


def signed(message: Message, kinds: frozenset[str]) -> bool:
    """Whether a reply holds a signed part of these kinds."""
    opaque = (block for part in message.parts if isinstance(part, Thinking) for block in part.opaque)
    return any(cast(str, block.get("type")) in kinds for block in opaque)
