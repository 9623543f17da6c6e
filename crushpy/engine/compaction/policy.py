"""Watches how full the window is and decides when a session ends. How it ends is in `crossing.py`."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from crushpy.context.budget import Budget, output_limit, threshold_of
from crushpy.context.cuts import apply_cuts, cut_oldest
from crushpy.context.inspect import Inspection, inspect
from crushpy.context.status import status_text
from crushpy.engine.compaction.boundary import BoundaryBuilder, Declined, Rehearsal, Trigger, Way
from crushpy.engine.compaction.circuit_breaker import CircuitBreaker
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.errors import CrushpyError
from crushpy.events import Event, Notice
from crushpy.llm.errors import ContextOverflow
from crushpy.llm.protocol import Request
from crushpy.messages import Message, ToolResult, to_json
from crushpy.prompts import Found
from crushpy.settings import Settings
from crushpy.storage.records import StorageError

log = logging.getLogger(__name__)

MAX_RECOVERIES = 3
NO_THRESHOLD = 0.75
"""Where `auto` is off, what a boundary after an overflow plans for."""


class ContextPolicy:
    """The context control of one conversation."""

    def __init__(
        self,
        session: LiveSession,
        models: Models,
        gauge: Gauge,
        crossing: BoundaryBuilder,
        settings: Callable[[], Settings],
        save: Callable[[str, str], None],
        emit: Callable[[Event], None],
        *,
        interactive: bool,
        told: set[str],
    ) -> None:
        """`told` is what the user was told once already, by any agent of the conversation."""
        self._save = save
        self._session = session
        self._models = models
        self._gauge = gauge
        self._crossing = crossing
        self._settings = settings
        self._emit = emit
        self._interactive = interactive
        self._breaker = CircuitBreaker()
        self._recoveries = 0
        self._told = told

    # --- requests ---------------------------------------------------------------------------------------

    def request(self, pending: Sequence[Message] = ()) -> Request:
        """The next model call; in `llm` with the status of this very moment."""
        info = self._session.info
        history = self._shown(pending)
        request = self._models.request(info, history)
        reading = self._gauge.reading(request, history)
        self._explain(reading)
        status = status_text(reading) if info.compaction == "llm" else ""
        limit = output_limit(reading, request.max_output_tokens) if request.max_output_tokens else None
        return msgspec.structs.replace(
            request,
            status=status,
            status_placement=self._models.placement(info.model),
            max_output_tokens=limit,
        )

    def remember_placement(self, model: str) -> None:
        """The server takes the status only inside the last message: from now on it goes there, for good."""
        if self._models.learn_placement(model):
            self._save(f'models."{model}".status_placement', "append")

    def budget(self) -> Budget:
        """How full the window is now: what the gauge on screen shows."""
        history = self._shown()
        return self._gauge.reading(self._models.request(self._session.info, history), history)

    def inspect(self) -> Inspection:
        """What fills the window, part by part."""
        history = self._shown()
        request = self._models.request(self._session.info, history)
        tools = [(tool.name, to_json(tool).decode()) for tool in request.tools]
        return inspect(
            request.system,
            tools,
            history,
            self._gauge.reading(request, history),
            count=self._gauge.count,
            size=self._gauge.size,
            cached=self._gauge.cached,
        )

    def _shown(self, pending: Sequence[Message] = ()) -> list[Message]:
        return apply_cuts((*self._session.history, *pending), self._session.cuts)

    def _explain(self, reading: Budget) -> None:
        model = self._session.info.model
        if not reading.window_known:
            self._once(
                f"window {model}",
                f"The window of {model} is not known; {reading.window:,} tokens are assumed. "
                f"""Set it: crushpy config set 'models."{model}".context_window' NUMBER""",
            )
        if not reading.believed:
            self._once(
                f"usage {model}",
                f"{model} reports a usage that cannot be right; crushpy goes by its own estimate (~).",
            )
        if reading.clamped:
            self._once(
                f"clamped {self._session.info.id}",
                f"By our figures more than all {reading.window:,} tokens of {model} are in use.",
            )

    def _once(self, key: str, text: str) -> None:
        if key not in self._told and self._session.stored:
            self._told.add(key)
            self._emit(Notice(text, "warning"))

    # --- when -------------------------------------------------------------------------------------------

    def _threshold(self) -> tuple[float | None, Trigger]:
        """At which share the session ends by itself, and what that would be called."""
        info, wanted = self._session.info, self._settings().compaction
        if info.compaction == "llm":
            return wanted.fallback_threshold, "fallback"
        own = self._settings().models.get(info.model)
        threshold = threshold_of(wanted.threshold, own.threshold if own else None)
        if threshold is not None and self._session.held:
            threshold = max(threshold, wanted.fallback_threshold)
        return threshold, "auto"

    async def before_call(self) -> None:
        """Crosses a boundary where the window is full enough. Never stops the turn: a failure is a notice."""
        threshold, trigger = self._threshold()
        if threshold is None:
            return
        history = self._shown()
        request = self._models.request(self._session.info, history)
        reading = await self._gauge.settled(request, history, threshold)
        if not reading.reaches(threshold) or self._breaker.blocks(reading.used):
            return
        way = Way(trigger, review=self._reviews)
        try:
            if await self._cross(way, reading, request):
                self._breaker.crossed()
            else:
                self._say_floor(request, reading)
        except Postponed as error:
            self._breaker.postponed()
            self._emit(Notice(f"Not compacted now, tried again in a minute: {error.message}", "warning"))
        except Declined:
            self._breaker.postponed()
            self._emit(Notice("The fresh start was declined."))
        except Exception as error:  # a failure here must not stop the turn; what is stored is unchanged
            log.exception("compaction failed")
            self._breaker.postponed()
            reason = error.message if isinstance(error, CrushpyError) else f"{type(error).__name__}: {error}"
            self._emit(Notice(f"Not compacted: {reason}", "warning"))

    @property
    def _reviews(self) -> bool:
        return self._interactive and self._settings().compaction.review == "ask"

    async def _cross(self, way: Way, reading: Budget, request: Request) -> bool:
        threshold = self._threshold()[0] or NO_THRESHOLD
        await asyncio.to_thread(self._gauge.load)
        return await self._crossing.cross(
            way,
            window=reading.window,
            threshold=threshold,
            fixed=self._gauge.fixed(request),
            before=reading.used,
        )

    def _say_floor(self, request: Request, reading: Budget) -> None:
        fixed = self._gauge.fixed(request)
        self._once(
            f"floor {self._session.info.id}",
            f"There is nothing to compact: system prompt and tools take {fixed:,} of {reading.window:,} "
            "tokens, and the rest is the current request. Use a model with a larger window, or ask for less "
            "at once.",
        )

    async def after_reply(self, request: Request, message: Message) -> None:
        """Takes note of what a reply used. Its message is the last of the history by now."""
        self._recoveries = 0
        self._crossing.replied()
        history = self._shown()
        self._gauge.reported(message.usage, history)
        if message.usage is not None:
            await self._session.first_report(message.usage.total)
        threshold, _ = self._threshold()
        if threshold is None:
            return
        reading = self._gauge.reading(request, history)
        self._breaker.reported(reading.used, threshold * reading.window)
        if self._breaker.first_time():
            fixed = self._gauge.fixed(request)
            self._emit(
                Notice(
                    "Two fresh starts in a row did not get below the threshold; crushpy stops making them. "
                    f"System prompt and tools alone take {fixed:,} of {reading.window:,} tokens. "
                    "Use /compact, a model with a larger window, or fewer context files.",
                    "warning",
                )
            )

    # --- asked for --------------------------------------------------------------------------------------

    async def hand_over(self, answers: ToolResult, summary: str, tell: Callable[[ToolResult], None]) -> str:
        """The agent's own `new_session`. Empty where the child is open, else why there is none."""
        history = self._shown()
        request = self._models.request(self._session.info, history)
        reading = self._gauge.reading(request, history)
        way = Way("agent", summary=summary, answers=answers, tell=tell, review=self._reviews)
        try:
            await self._cross(way, reading, request)
        except Declined as declined:
            return f"The user declined the fresh start. {declined.words} Carry on in this session.".replace(
                "  ", " "
            )
        except StorageError as error:
            return f"The fresh start could not be stored: {error.message} Carry on in this session."
        return ""

    async def compact(
        self, focus: str = "", summary: str = "", *, review: bool = False, template: Found | None = None
    ) -> bool:
        """By hand: with words for the summariser, or with the user's own summary. False: nothing to do."""
        history = self._shown()
        request = self._models.request(self._session.info, history)
        reading = self._gauge.reading(request, history)
        self._breaker.rearm()
        way = Way("manual", focus=focus, summary=summary, review=review, template=template)
        crossed = await self._cross(way, reading, request)
        if not crossed:
            self._emit(Notice("There is nothing to compact yet."))
        return crossed

    async def rehearse(self, focus: str = "", template: Found | None = None) -> Rehearsal | None:
        """What `compact` would carry over, with another template if given. Changes nothing."""
        history = self._shown()
        request = self._models.request(self._session.info, history)
        await asyncio.to_thread(self._gauge.load)
        reading = self._gauge.reading(request, history)
        return await self._crossing.rehearse(
            Way("manual", focus=focus, template=template),
            window=reading.window,
            threshold=self._threshold()[0] or NO_THRESHOLD,
            fixed=self._gauge.fixed(request),
            before=reading.used,
        )

    def switched_model(self) -> None:
        """The old reading is void, and another window may change everything."""
        self._gauge.void()
        self._breaker.rearm()

    # --- overflow ---------------------------------------------------------------------------------------

    async def recover(self, error: ContextOverflow, request: Request) -> None:
        """Shrinks the next request after the provider refused this one; raises where nothing helps."""
        if error.limit:
            self._gauge.limit_window(request.model, error.limit)
        while self._recoveries < MAX_RECOVERIES:
            self._recoveries += 1
            if await self._shrink(self._recoveries, request):
                return
        raise ContextOverflow(self._too_large(request), _WAY_OUT, limit=error.limit) from error

    async def _shrink(self, attempt: int, request: Request) -> bool:
        history = self._shown()
        if attempt == 1:
            return await self._cut_results(history, request)
        reading = self._gauge.reading(request, history)
        last = attempt == MAX_RECOVERIES
        way = Way("overflow", may_postpone=False, evidence_only=last, minimal_tail=last)
        return await self._cross(way, reading, request)

    async def _cut_results(self, history: Sequence[Message], request: Request) -> bool:
        """Cuts the oldest large results until a quarter of what they weigh together is gone."""
        await asyncio.to_thread(self._gauge.load)
        goal = (self._gauge.fixed(request) + sum(map(self._gauge.size, history))) // 4
        saved = 0

        def enough(before: Message, after: Message) -> bool:
            nonlocal saved
            saved += self._gauge.size(before) - self._gauge.size(after)
            return saved >= goal

        cuts = cut_oldest(history, self._session.cuts, enough=enough)
        if not cuts or saved <= 0:
            return False
        await self._session.add_cuts(cuts)
        self._gauge.void()
        self._emit(Notice(f"The window was full: {len(cuts)} large tool results are shown shortened."))
        return True

    def _too_large(self, request: Request) -> str:
        history = self._shown()
        fixed = self._gauge.fixed(request)
        sizes = sorted(
            ((self._gauge.size(message), message) for message in history), key=lambda pair: -pair[0]
        )
        reading = self._gauge.reading(request, history)
        text = (
            f"The request does not fit the window of {request.model} ({reading.window:,} tokens): "
            f"system prompt and tools take {fixed:,}"
        )
        if sizes:
            size, message = sizes[0]
            text += f", the largest message ({message.role}, {message.id}) takes {size:,}"
        return f"{text}."


_WAY_OUT = "Use a model with a larger window, ask for less at once, or start a new conversation."
