"""The built-in model `demo/tour`: no network, no key, no learning; it works with the real tools.

It keeps nothing between requests: what comes next follows from the messages alone (`brain.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Finish, Usage
from crushpy.llm.catalog import DEMO, DEMO_INFO
from crushpy.llm.demo.brain import next_step
from crushpy.llm.demo.steps import Step
from crushpy.llm.errors import BadRequest, ContextOverflow
from crushpy.llm.image_rules import OPENAI
from crushpy.llm.protocol import CallPiece, Done, Piece, Request, Sent, TextPiece
from crushpy.llm.tokens import BYTES_PER_TOKEN, sent_text

_PIECE = 24
"""Characters of text streamed at a time, give or take a word."""


class DemoProvider:
    """Answers requests for `demo/tour`. `pause`: seconds between pieces, for those who want to watch."""

    slow_to_begin = False

    def __init__(self, window: int | None = None, pause: float = 0.0) -> None:
        self._window = window or DEMO_INFO.context_window or 0
        self._pause = pause

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        if request.model != DEMO:
            raise BadRequest(f"There is no model {request.model}.", f"The built-in model is {DEMO}.")
        yield Sent()
        used = _size(request)
        if used > self._window:
            raise ContextOverflow(
                f"The request has about {used:,} tokens; the window of {DEMO} has {self._window:,}.",
                "Start a new session.",
                limit=self._window,
            )
        step, finish = _fitted(next_step(request, used / self._window), request.max_output_tokens)
        for text in _pieces(step.text):
            yield TextPiece(text)
            await asyncio.sleep(self._pause)
        for index, call in enumerate(step.calls):
            args = msgspec.json.encode(call.args).decode()
            half = len(args) // 2
            yield CallPiece(index, id=f"call_{new_id()}", name=call.name, args=args[:half])
            yield CallPiece(index, args=args[half:])
            await asyncio.sleep(0)
        yield Done(finish, Usage(input_tokens=used, output_tokens=_tokens(_written(step))))

    async def close(self) -> None:
        pass


def _fitted(step: Step, limit: int | None) -> tuple[Step, Finish]:
    """The step within the output limit of the request; what is cut asks for no tool."""
    if limit is not None and _tokens(_written(step)) > limit:
        return Step(step.text[: limit * BYTES_PER_TOKEN]), "length"
    return step, "tool_calls" if step.calls else "stop"


def _written(step: Step) -> int:
    return len(step.text) + sum(len(msgspec.json.encode(call)) for call in step.calls)


def _size(request: Request) -> int:
    """What the request would count as with a real model, roughly."""
    chars = len(request.system) + len(request.status) + sum(map(len, map(msgspec.json.encode, request.tools)))
    images = 0
    for message in request.messages:
        for part in message.parts:
            chars += len(sent_text(part))
        images += sum(map(OPENAI.tokens, message.images))
    return _tokens(chars) + images


def _tokens(chars: int) -> int:
    return -(-chars // BYTES_PER_TOKEN)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        blank = text.find(" ", start + _PIECE)
        end = len(text) if blank < 0 else blank + 1
        yield text[start:end]
        start = end
