"""One model call: a stream becomes events and one complete reply; its draft is saved meanwhile."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, cast

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.events import LOADING, READING_PROMPT, Emit, Retry, TextDelta, ThinkingDelta, UsageReported
from crushpy.core.ids import new_id
from crushpy.core.messages import Json, Message, Part, Text, Thinking, ToolCall, Usage
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.event_bus import ProgressReporter
from crushpy.engine.models import Models
from crushpy.engine.turn.limits import Spent
from crushpy.llm import protocol
from crushpy.llm.errors import MAX_RETRIES, EmptyReply, ModelError, Refused, retry_delay
from crushpy.llm.protocol import ReplyMeter
from crushpy.util.read_json import decode_json, too_deep
from crushpy.util.spawn import spawn
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

JOIN_BATCH = 500
"""Calls of a reply that are parsed before the event loop gets a turn."""
PREPARE_AFTER_S = 0.1
"""How long a reply takes before its calls are prepared for: those of a faster one would compete with it."""
DRAFT_INTERVAL_S = 0.25
"""Between two writes of a draft."""
LARGE_DRAFT_CHARS = 100_000
"""A larger draft is written less often: a long reply costs no more than a short one."""


class Draft:
    """The part of a reply received so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.size = 0
        """Characters of text and thinking."""
        self.meter = ReplyMeter()
        self.opaque: list[Json] = []
        self._thinking_since: float | None = None
        self._thinking_seconds = 0.0
        self.calls: dict[int, list[protocol.CallPiece]] = {}
        self.end = protocol.Done("")

    def think(self, text: str) -> None:
        self.thinking.append(text)
        self.size += len(text)
        if self._thinking_since is None:
            self._thinking_since = time.monotonic()

    def stop_thinking(self) -> None:
        """Another kind of piece arrived; thinking may continue after it."""
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
            if number % JOIN_BATCH == 0:
                await asyncio.sleep(0)  # lets key presses through
        end = self.end
        return Message(new_id(), "assistant", tuple(parts), time.time(), model, end.usage, end.finish)

    def interrupted(self, model: str, message_id: str = "") -> Message | None:
        """The text and thinking of an interrupted reply; its calls are dropped, never run."""
        parts: list[Part] = []
        if not _is_blank(self.thinking):
            parts.append(Thinking("".join(self.thinking), seconds=int(self._thinking_seconds)))
        if not _is_blank(self.text):
            parts.append(Text("".join(self.text)))
        if not parts:
            return None
        own = message_id or new_id()
        return Message(own, "assistant", tuple(parts), time.time(), model, finish="interrupted")


def _is_blank(pieces: list[str]) -> bool:
    return all(not piece or piece.isspace() for piece in pieces)


def _join(pieces: list[protocol.CallPiece], taken_ids: set[str]) -> ToolCall:
    given = next((piece.id for piece in pieces if piece.id), "")
    call_id = given if given and given not in taken_ids else f"call_{new_id()}"
    name = "".join(piece.name for piece in pieces)
    opaque = next((piece.opaque for piece in pieces if piece.opaque), None)
    source = "".join([piece.args for piece in pieces])
    try:
        args: Any = decode_json(source) if source.strip() else {}
    except ValueError:
        args = None
    if too_deep(args) or not isinstance(args, dict):
        return ToolCall(call_id, name, {}, bad_json=source, opaque=opaque)
    return ToolCall(call_id, name, cast(Json, args), opaque=opaque)


class ModelCall:
    """One request, retried until there is a complete reply or no hope of one.

    `draft` holds the reply so far, for callers that interrupt it. Subclasses override the three hooks.
    """

    asks = False
    """Whether the user is asked to go on if a budget is used up."""

    def __init__(
        self,
        models: Models,
        request: protocol.Request,
        emit: Emit,
        *,
        may_retry: Callable[[ModelError], bool] = lambda _: True,
    ) -> None:
        """`may_retry`: whether a transient error is worth another attempt."""
        self._models, self._request, self._emit = models, request, emit
        self._provider = models.provider(request.model)
        self._may_retry = may_retry
        self.draft = Draft()

    def _on_sent(self) -> None:
        """Called once the request is sent."""

    def _on_change(self) -> None:
        """Called for every piece of text or thinking."""

    async def _on_failure(self, error: ModelError) -> None:
        """Called after a failed attempt, before the next one."""

    async def run(self) -> Draft:
        """The complete reply. Raises ModelError if there is none: BudgetReached before a request."""
        attempt = 0
        while True:
            self.draft = Draft()
            if self._models.spending is not None:
                await self._models.spending.admit(self._request.model, asks=self.asks)
            try:
                await self._stream(self.draft)
                self._check()
                return self.draft
            except ModelError as error:
                await self._on_failure(error)
                attempt += 1
                seconds = retry_delay(error, attempt, random.random())  # noqa: S311
                if seconds is None or not self._may_retry(error):
                    raise
                reason = f"{error.message.rstrip('.')}."
                self._emit(Retry(attempt, round(seconds, 2), reason, MAX_RETRIES, error.status))
                await asyncio.sleep(seconds)

    def _check(self) -> None:
        """Raises if a complete reply has neither text nor calls."""
        model = self._request.model
        if self.draft.end.finish == "content_filter":
            raise Refused(
                f"{model} refused to answer (content filter).", "Rephrase the request, or switch models."
            )
        if not self.draft.calls and _is_blank(self.draft.text):
            raise EmptyReply(f"{model} sent an empty reply.", "Ask again, or switch the model.")

    async def _stream(self, draft: Draft) -> None:
        stream, progress = self._provider.stream(self._request), ExitStack()
        try:
            if self._provider.slow_to_begin:
                with ProgressReporter(self._emit, LOADING):
                    async for piece in stream:
                        self._add(draft, piece)
                        break
            reading: ProgressReporter | None = None
            async for piece in stream:
                if isinstance(piece, protocol.PromptRead):
                    reading = reading or progress.enter_context(ProgressReporter(self._emit, READING_PROMPT))
                    reading.update(piece.done, piece.total)
                    continue
                progress.close()
                self._add(draft, piece)
                if draft.meter.full:
                    draft.stop_thinking()
                    draft.end = protocol.Done("length")
                    return
        finally:
            progress.close()
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _add(self, draft: Draft, piece: protocol.Piece) -> None:
        piece = draft.meter.measure(piece)
        match piece:
            case protocol.Sent():
                self._on_sent()
            case protocol.TextPiece(""):
                pass  # the server is past the prompt, and the text may be a call
            case protocol.TextPiece():
                draft.stop_thinking()
                draft.text.append(piece.text)
                draft.size += len(piece.text)
                self._emit(TextDelta(piece.text))
                self._on_change()
            case protocol.ThinkingPiece():
                draft.think(piece.text)
                self._emit(ThinkingDelta(piece.text))
                self._on_change()
            case protocol.CallPiece():
                draft.stop_thinking()
                draft.calls.setdefault(piece.index, []).append(piece)
            case protocol.ThinkingOpaque():
                draft.opaque.append(piece.data)
            case protocol.PromptRead():
                pass  # shown by `_stream`
            case protocol.Done():
                draft.stop_thinking()
                draft.end = piece


class RecordedCall(ModelCall):
    """A model call of a turn: counts failed replies and stores their thinking.

    The draft is saved a few times a second, on the storage thread: a killed process loses no more than that.
    """

    asks = True

    def __init__(self, scope: AgentScope, request: protocol.Request, spent: Spent) -> None:
        super().__init__(scope.models, request, scope.emit)
        self._session, self._spent = scope.session, spent
        self._services = scope.services
        self._drafts, self._session_id = scope.services.store.messages, scope.session.info.id
        self._draft_id = new_id()
        self._due: asyncio.TimerHandle | None = None
        self._draft_saved = False
        self._preparing: asyncio.TimerHandle | None = None

    async def run(self) -> Draft:
        try:
            return await super().run()
        finally:
            self._stop_saving()  # storing the complete reply removes the draft
            if self._preparing is not None:
                self._preparing.cancel()

    def _on_sent(self) -> None:
        if self._preparing is None:
            loop = asyncio.get_running_loop()
            self._preparing = loop.call_later(PREPARE_AFTER_S, self._services.prepare_calls)

    def _on_change(self) -> None:
        if self._due is None:
            delay_s = DRAFT_INTERVAL_S * max(1.0, self.draft.size / LARGE_DRAFT_CHARS)
            self._due = asyncio.get_running_loop().call_later(delay_s, self._save_draft)

    def _save_draft(self) -> None:
        self._due = None
        if message := self.draft.interrupted(self._request.model, self._draft_id):
            self._draft_saved = True
            spawn(_logged(self._drafts.save_draft(self._session_id, message)))

    def _stop_saving(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def _on_failure(self, error: ModelError) -> None:
        """Counts a reply that is thrown away, and stores the thinking of an empty one."""
        self._stop_saving()
        if self._draft_saved:
            self._draft_saved = False
            await _logged(self._drafts.delete_draft(self._session_id))
        draft, empty = self.draft, isinstance(error, EmptyReply)
        if draft.end.usage is None and not empty:
            return
        message = self._models.priced(await draft.message(self._session.info.model, set()))
        used = message.usage or Usage()
        self._spent.use(used)
        if empty and not _is_blank(draft.thinking):
            thinking = msgspec.structs.replace(message, parts=message.parts[:1])
            await uncancellable(self._session.add_reply(thinking))
            if message.usage is not None:
                self._emit(UsageReported(used, self._session.usage))
        elif used.total:
            await uncancellable(self._session.count(used))


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except CrushpyError as error:  # storing the reply will report it
        log.info("no draft: %s", error.message)
