"""The built-in model `demo/tour`: no network and no key, but the real tools.

It keeps no state between requests: the next step follows from the messages alone (`next_step.py`).
"""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Finish, Usage
from crushpy.llm.catalog import DEMO, DEMO_INFO
from crushpy.llm.demo.next_step import next_step
from crushpy.llm.demo.plans import Step
from crushpy.llm.errors import BadRequest, ContextOverflow
from crushpy.llm.image_rules import OPENAI
from crushpy.llm.protocol import CallPiece, Done, Piece, Request, Sent, TextPiece
from crushpy.llm.tokens import BYTES_PER_TOKEN, sent_text

PIECES = re.compile(r".{1,24}\S*\s?", re.DOTALL)
"""Text is streamed in pieces of about 24 characters, cut at a blank."""


class DemoProvider:
    """Answers requests for `demo/tour`."""

    slow_to_begin = False

    def __init__(self, window: int | None = None) -> None:
        self._window = window or DEMO_INFO.context_window or 0

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        if request.model != DEMO:
            raise BadRequest(f"There is no model {request.model}.", f"The built-in model is {DEMO}.")
        yield Sent()
        used = _input_tokens(request)
        if used > self._window:
            raise ContextOverflow(
                f"The request has about {used:,} tokens; the window of {DEMO} has {self._window:,}.",
                "Start a new session.",
                limit=self._window,
            )
        step, finish = _fit(next_step(request, used / self._window), request.max_output_tokens)
        for text in re.findall(PIECES, step.text):
            yield TextPiece(text)
            await asyncio.sleep(0)
        for index, call in enumerate(step.calls):
            args = msgspec.json.encode(call.args).decode()
            half = len(args) // 2
            yield CallPiece(index, id=f"call_{new_id()}", name=call.name, args=args[:half])
            yield CallPiece(index, args=args[half:])
            await asyncio.sleep(0)
        yield Done(finish, Usage(input_tokens=used, output_tokens=_output_tokens(step)))

    async def close(self) -> None:
        pass


def _fit(step: Step, limit: int | None) -> tuple[Step, Finish]:
    """The step within the output limit; a truncated one makes no calls."""
    if limit is not None and _output_tokens(step) > limit:
        return Step(step.text[: limit * BYTES_PER_TOKEN]), "length"
    return step, "tool_calls" if step.calls else "stop"


def _output_tokens(step: Step) -> int:
    return _tokens(len(step.text) + sum(len(msgspec.json.encode(call)) for call in step.calls))


def _input_tokens(request: Request) -> int:
    """About what the request would count as with a real model."""
    chars = len(request.system) + len(request.status) + sum(map(len, map(msgspec.json.encode, request.tools)))
    chars += sum(len(sent_text(part)) for message in request.messages for part in message.parts)
    return _tokens(chars) + sum(
        OPENAI.tokens(image) for message in request.messages for image in message.images
    )


def _tokens(chars: int) -> int:
    return -(-chars // BYTES_PER_TOKEN)
