"""The built-in model `demo/tour`: no network and no key, but the real tools.

It keeps no state between requests: the next reply follows from the messages alone (`tour.py`).
"""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Usage
from crushpy.llm.catalog import DEMO, DEMO_INFO
from crushpy.llm.demo.tour import next_reply
from crushpy.llm.errors import BadRequest, ContextOverflow
from crushpy.llm.protocol import CallPiece, Done, Piece, Request, Sent, TextPiece
from crushpy.llm.tokens import BYTES_PER_TOKEN, OPENAI, sent_text

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
        reply = next_reply(request, used / self._window)
        for text in re.findall(PIECES, reply.text):
            yield TextPiece(text)
            await asyncio.sleep(0)
        for index, call in enumerate(reply.calls):
            args = msgspec.json.encode(call.args).decode()
            half = len(args) // 2
            yield CallPiece(index, id=f"call_{new_id()}", name=call.name, args=args[:half])
            yield CallPiece(index, args=args[half:])
            await asyncio.sleep(0)
        written = len(reply.text) + sum(len(msgspec.json.encode(call)) for call in reply.calls)
        finish = "tool_calls" if reply.calls else "stop"
        yield Done(finish, Usage(input_tokens=used, output_tokens=written // BYTES_PER_TOKEN))

    async def close(self) -> None:
        pass


def _input_tokens(request: Request) -> int:
    """About what the request would count as with a real model."""
    chars = len(request.system) + len(request.status) + sum(map(len, map(msgspec.json.encode, request.tools)))
    chars += sum(len(sent_text(part)) for message in request.messages for part in message.parts)
    images = (image for message in request.messages for image in message.images)
    return chars // BYTES_PER_TOKEN + sum(map(OPENAI.tokens, images))
