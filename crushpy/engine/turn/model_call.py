"""One model call: pieces of a stream become events, and at the end one complete reply."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from crushpy.core.events import LOADING, Event, Retry, TextDelta, ThinkingDelta
from crushpy.core.ids import new_id
from crushpy.core.messages import Finish, Json, Message, Part, Text, Thinking, ToolCall, Usage
from crushpy.engine.progress_reporter import ProgressReporter
from crushpy.llm.errors import MAX_RETRIES, EmptyReply, ModelError, Refused, Unavailable, retry_delay
from crushpy.llm.protocol import (
    CallPiece,
    Done,
    Piece,
    Provider,
    Request,
    Sent,
    TextPiece,
    ThinkingOpaque,
    ThinkingPiece,
)
from crushpy.llm.read_json import decode_json, too_deep
from crushpy.llm.reply_limits import ReplyMeter

Emit = Callable[[Event], None]
JOINED_AT_A_TIME = 500
"""Calls of a reply that are put together in one go."""


class Draft:
    """What has come of a reply so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.size = 0
        """Characters of text and thinking."""
        self.meter = ReplyMeter()
        self.opaque: list[Json] = []
        self._thinking_since: float | None = None
        self._thinking_seconds = 0.0
        self.calls: dict[int, list[CallPiece]] = {}
        self.finish: Finish = ""
        self.usage: Usage | None = None
        self.status_moved = False
        """The server refused the status where it stood, and took it elsewhere."""

    def think(self, text: str) -> None:
        self.thinking.append(text)
        self.size += len(text)
        if self._thinking_since is None:
            self._thinking_since = time.monotonic()

    def stop_thinking(self) -> None:
        """Something else has come; thinking may go on after it."""
        if self._thinking_since is not None:
            self._thinking_seconds += time.monotonic() - self._thinking_since
            self._thinking_since = None

    async def message(self, model: str, taken_ids: set[str]) -> Message:
        """The assistant's message. Call ids are made unique within the session: providers repeat them."""
        parts: list[Part] = []
        if self.thinking or self.opaque:
            parts.append(Thinking("".join(self.thinking), tuple(self.opaque), int(self._thinking_seconds)))
        if text := "".join(self.text):
            parts.append(Text(text))
        for number, index in enumerate(sorted(self.calls), start=1):
            call = _join(self.calls[index], taken_ids)
            taken_ids.add(call.id)
            parts.append(call)
            if number % JOINED_AT_A_TIME == 0:
                await asyncio.sleep(0)  # keys are heard in between
        return Message(
            id=new_id(),
            role="assistant",
            parts=tuple(parts),
            created_at=time.time(),
            model=model,
            usage=self.usage,
            finish=self.finish,
        )

    def interrupted(self, model: str, message_id: str = "") -> Message | None:
        """What a reply that was stopped half-way thought and said; its calls are dropped, never run."""
        parts: list[Part] = []
        if not _is_blank(self.thinking):
            parts.append(Thinking("".join(self.thinking), seconds=int(self._thinking_seconds)))
        if not _is_blank(self.text):
            parts.append(Text("".join(self.text)))
        if not parts:
            return None
        return Message(
            id=message_id or new_id(),
            role="assistant",
            parts=tuple(parts),
            created_at=time.time(),
            model=model,
            finish="interrupted",
        )


def _is_blank(pieces: list[str]) -> bool:
    return all(not piece or piece.isspace() for piece in pieces)


def _join(pieces: list[CallPiece], taken_ids: set[str]) -> ToolCall:
    given = next((piece.id for piece in pieces if piece.id), "")
    call_id = given if given and given not in taken_ids else f"call_{new_id()}"
    name = "".join(piece.name for piece in pieces)
    opaque = next((piece.opaque for piece in pieces if piece.opaque), None)
    source = "".join([piece.args for piece in pieces])
    try:
        args: Any = decode_json(source) if source.strip() else {}
    except ValueError:
        args = None
    if too_deep(args):
        args = None
    if not isinstance(args, dict):
        return ToolCall(call_id, name, {}, bad_json=source, opaque=opaque)
    return ToolCall(call_id, name, cast(Json, args), opaque=opaque)


class ModelCall:
    """One request, asked until there is a complete reply or no hope of one.

    `before_reply` is awaited once the request is on its way, and before anything of the reply is shown.
    `draft` holds what has come so far, for whoever interrupts.
    """

    def __init__(
        self,
        provider: Provider,
        request: Request,
        emit: Emit,
        before_reply: Callable[[], Awaitable[None]],
        *,
        ask_again: Callable[[ModelError], bool] = lambda _: True,
        seconds_to_send: float | None = None,
        changed: Callable[[Draft], None] = lambda _: None,
        void: Callable[[Draft, ModelError], Awaitable[None]] | None = None,
    ) -> None:
        """`ask_again`: whether an error that may pass is worth another attempt. `seconds_to_send`: how long
        the request may take to leave, connecting included. `changed` hears of every piece that is shown,
        `void` of a draft that came to nothing, before it is asked for again."""
        self._changed = changed
        self._void = void
        self._ask_again = ask_again
        self._seconds_to_send = seconds_to_send
        self.draft = Draft()
        self._provider = provider
        self._request = request
        self._emit = emit
        self._before_reply = before_reply

    async def run(self) -> Draft:
        """The complete reply. Raises ModelError when there is none to be had."""
        attempt = 0
        while True:
            self.draft = Draft()
            try:
                await self._stream(self.draft)
                self._check()
                return self.draft
            except ModelError as error:
                await self._before_reply()
                if self._void is not None:
                    await self._void(self.draft, error)
                attempt += 1
                seconds = retry_delay(error, attempt, random.random())  # noqa: S311
                if seconds is None or not self._ask_again(error):
                    raise
                reason = f"{error.message.rstrip('.')}."
                self._emit(Retry(attempt, round(seconds, 2), reason, MAX_RETRIES, error.status))
                await asyncio.sleep(seconds)

    def _check(self) -> None:
        """Raises where a complete reply holds nothing to go on with."""
        model = self._request.model
        if self.draft.finish == "content_filter":
            raise Refused(
                f"{model} refused to answer (content filter).", "Put it differently, or switch models."
            )
        if not self.draft.calls and _is_blank(self.draft.text):
            raise EmptyReply(f"{model} sent an empty reply.", "Ask again, or switch the model.")

    async def _stream(self, draft: Draft) -> None:
        stream = self._provider.stream(self._request)
        try:
            if self._seconds_to_send is not None:
                await self._leave(stream, draft, self._seconds_to_send)
            elif self._provider.slow_to_begin:
                with ProgressReporter(self._emit, LOADING):
                    await self._first(stream, draft)
            async for piece in stream:
                await self._hear(draft, piece)
                if draft.meter.full:
                    draft.stop_thinking()
                    draft.finish = "length"
                    return
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _first(self, stream: AsyncIterator[Piece], draft: Draft) -> None:
        async for piece in stream:
            await self._hear(draft, piece)
            return

    async def _hear(self, draft: Draft, piece: Piece) -> None:
        if isinstance(piece, Sent):
            await self._before_reply()
        else:
            self._take(draft, piece)

    async def _leave(self, stream: AsyncIterator[Piece], draft: Draft, seconds: float) -> None:
        """Waits until the request is on its way; Unavailable where that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream)
        except TimeoutError:
            model = self._request.model
            raise Unavailable(f"{model} could not be reached within {seconds:g} s.") from None
        self._take(draft, piece)
        await self._before_reply()

    def _take(self, draft: Draft, piece: Piece) -> None:
        piece = draft.meter.measure(piece)
        match piece:
            case TextPiece():
                draft.stop_thinking()
                draft.text.append(piece.text)
                draft.size += len(piece.text)
                self._emit(TextDelta(piece.text))
                self._changed(draft)
            case ThinkingPiece():
                draft.think(piece.text)
                self._emit(ThinkingDelta(piece.text))
                self._changed(draft)
            case CallPiece():
                draft.stop_thinking()
                draft.calls.setdefault(piece.index, []).append(piece)
            case ThinkingOpaque():
                draft.opaque.append(piece.data)
            case Done():
                draft.stop_thinking()
                draft.finish, draft.usage = piece.finish, piece.usage
                draft.status_moved = piece.status_moved
            case Sent():
                pass
