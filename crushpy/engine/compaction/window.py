"""The context of one session: the next request, how full the window is, its thresholds and breaker."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from crushpy.context.budget import Budget, output_limit, status_text, threshold_of
from crushpy.context.facts import Quote, moment_at
from crushpy.context.history import SentHistory, well_formed
from crushpy.context.inspect import Inspection, inspect, window_parts
from crushpy.context.overrides import apply_overrides, without_images
from crushpy.context.partition import Size
from crushpy.context.render import seed_text
from crushpy.core.boundary import CompactionTrigger
from crushpy.core.defaults import DEFAULT_THRESHOLD
from crushpy.core.events import Notice
from crushpy.core.messages import Data, Json, Message, SentStatus, Todo
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.session.session import LiveSession
from crushpy.llm.protocol import Request
from crushpy.security.sanitize import to_json
from crushpy.settings.schema import Settings
from crushpy.storage.records import BreakerState
from crushpy.util.shown_paths import path_shortener

PREPARE_FROM_SHARE, PREPARE_BY_SHARE = 0.5, 0.85
"""The shares of the threshold between which a preparation starts, by the pace of the turn."""
PACE_READINGS = 6
"""How many model calls the pace is taken from."""
REARM_GROWTH = 1.25
"""Growth of the window's use after which a stopped breaker tries again."""
RETRY_AFTER_S = 60.0
"""Pause after a summariser that could not be reached."""
MAX_FUTILE_BOUNDARIES = 2
NOT_SEEN = "not shown: this model cannot look at pictures"


NextStep = Literal["too_large", "boundary", "wait", "moment", "prepare"]
"""Of a model call: nothing helps, compact at the threshold or at a moment, wait for the agent to call
`new_session`, or prepare."""


class WindowState(Data, frozen=True):
    """What would be sent now, and how full the window is with it."""

    history: tuple[Message, ...]
    """As a request shows it: with all message overrides applied."""
    request: Request
    """Without its messages: they are added when it is sent."""
    budget: Budget
    fixed_tokens: int
    """System prompt and tools: no boundary can make them smaller."""


class ContextView:
    """Answers all questions about a session's context, without changing it."""

    def __init__(self, scope: AgentScope) -> None:
        self._session, self._models, self._gauge = scope.session, scope.models, scope.gauge
        self._emit = scope.emit
        self._shown_warnings = scope.services.shown_warnings
        self._sent = SentHistory()
        self.moment = ""
        """The natural moment at which the next request is made; in `llm` the status names it."""
        self.dropped_thoughts = 0
        """Of the last request: replies whose thinking did not reach the model."""

    def now(self) -> WindowState:
        """The state by the figures at hand: cheap, loads nothing."""
        history, request = self.shown(), self._models.request(self._session.info)
        budget = self._gauge.reading(request, history)
        return WindowState(history, request, budget, self._gauge.fixed_tokens(request))

    def shown(self) -> tuple[Message, ...]:
        """The history as a request shows it: with overrides, and without pictures if the model takes none."""
        overrides, sees = self._session.overrides, self._models.sees(self._session.info.model)

        def show(messages: Sequence[Message]) -> Sequence[Message]:
            shown = apply_overrides(messages, overrides)
            return shown if sees else [without_images(message, NOT_SEEN) for message in shown]

        self._sent.update(tuple(self._session.history), (dict(overrides), sees), show)
        return self._sent.shown

    async def counted(self) -> WindowState:
        """The state by exact counts: waits for the token vocabulary."""
        await asyncio.to_thread(self._gauge.load_for, self.shown())
        return self.now()

    async def settled(self, threshold: float) -> WindowState:
        """The state, counted exactly if it might reach `threshold`.

        A token is at least one byte, so as long as the bytes stay below, nothing has to be counted and
        the vocabulary (half a second, 30 MB) need not be loaded.
        """
        state = self.now()
        if self._gauge.exact:
            return state
        most, limit = self._gauge.most(state.request, state.history), threshold * state.budget.window
        return state if state.budget.believed and most < limit else await self.counted()

    def next_request(self) -> Request:
        """The next model call; in `llm` with the current status."""
        state = self.now()
        info, limit = self._session.info, state.request.max_output_tokens
        self.warn_about_budget(state.budget)
        spending, depth = self._models.spending, len(self._session.branches)
        status = status_text(state.budget, self.moment, depth, spending.left if spending else "")
        request = msgspec.structs.replace(
            self._with_seed(state.request),
            messages=self._sent.valid,
            status=status if info.compaction == "llm" else "",
            status_placement=self._models.placement(info.model),
            max_output_tokens=output_limit(state.budget, limit) if limit else None,
        )
        return self._append_only(request) if request.status_placement == "keep" else request

    def prefix_request(self, count: int) -> Request:
        """The request that the first messages were sent in, for a summary of them."""
        request = msgspec.structs.replace(
            self._with_seed(self._models.request(self._session.info)),
            messages=well_formed(self.shown()[:count]),
            status_placement=self._models.placement(self._session.info.model),
        )
        if request.status_placement == "keep":
            request = msgspec.structs.replace(self._append_only(request), tool_changes=None)
        return request

    def _with_seed(self, request: Request) -> Request:
        """With the vendor's own form of the summary, if its model is still in use."""
        seed = self._session.seed
        if seed is None or seed.signed is None or seed.signed.model != request.model:
            return request
        rest = seed_text(seed, with_summary=False)
        return msgspec.structs.replace(request, signed_summary=seed.signed, rest_of_seed=rest)

    def _append_only(self, request: Request) -> Request:
        """The request with all that earlier ones of this session sent, unchanged; only its end is new."""
        statuses = tuple(self._session.statuses.values())
        request = msgspec.structs.replace(request, statuses=statuses)
        if not any(message.role == "assistant" for message in self._session.own_messages):
            return request
        own = self._models.llm_tools(self._session.info)
        if not own:
            return request
        names = tuple(tool.name for tool in own)
        changes = [status for status in statuses if status.added or status.removed]
        was_first = not changes[0].added if changes else bool(statuses)
        is_offered = bool(changes[-1].added) if changes else was_first
        others = tuple(tool for tool in request.tools if tool.name not in names)
        request = msgspec.structs.replace(request, tools=(*others, *own) if was_first else others)
        if is_offered == bool(request.status):
            return request
        # A message that changes tools cannot be cleared later, so it has no status beside it.
        definitions: list[Json] = [{"name": name} for name in names]
        if not was_first:
            definitions = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in own
            ]
        change = SentStatus(
            request.messages[-1].id,
            added=tuple(definitions) if request.status else (),
            removed=() if request.status else names,
        )
        return msgspec.structs.replace(request, status="", tool_changes=change)

    def inspect(self, requests: Sequence[Quote] = ()) -> Inspection:
        """What fills the window, part by part. `requests`: the prompts that a seed may quote."""
        state = self.now()
        scale = self._scale(state)
        found = inspect(
            state.request.system,
            [(tool.name, to_json(tool).decode()) for tool in state.request.tools],
            self._session.history,
            state.budget,
            count=lambda text: round(self._gauge.count(text) * scale),
            size=self.size_in(state),
            overrides=self._session.overrides,
            cwd=self._session.info.cwd,
            cached=self._gauge.cached,
            requests=requests,
        )
        short = path_shortener([self._session.info.cwd])
        rows = tuple(msgspec.structs.replace(row, name=short(row.name)) for row in found.rows)
        return msgspec.structs.replace(found, rows=rows, dropped_thoughts=self.dropped_thoughts)

    def size_in(self, state: WindowState) -> Size:
        """Tokens of a message, such that all parts of the window together are what is used."""
        scale = self._scale(state)
        return lambda message: round(self._gauge.size(message) * scale)

    def _scale(self, state: WindowState) -> float:
        counted = sum(self._gauge.by_kind(state.request, state.history).values())
        return 1.0 if state.budget.clamped or not counted else state.budget.used / counted

    def parts(self) -> tuple[Budget, dict[str, int]]:
        """How full the window is, and with what: cheap, for every step."""
        state = self.now()
        by_kind = self._gauge.by_kind(state.request, state.history)
        return state.budget, window_parts(by_kind, state.budget)

    def warn_once(self, key: str, text: str) -> None:
        """Shows a warning once in a conversation, however often its reason occurs."""
        if key not in self._shown_warnings:
            self._shown_warnings.add(key)
            self._emit(Notice(text, "warning"))

    def warn_about_budget(self, budget: Budget) -> None:
        """Warns once about figures that are assumed, estimated or out of range."""
        model = self._session.info.model
        if self._models.learning_problem:
            self.warn_once("learning", self._models.learning_problem)
        doubted = self._models.learnt(model).window_doubted
        if not budget.window_known and not doubted:
            self._models.learn(model, window_doubted=True)
            self.warn_once(
                f"window {model}",
                f"The context window of {model} is unknown; {budget.window:,} tokens are assumed. "
                f"""Set it: crushpy config set 'models."{model}".context_window' NUMBER""",
            )
        if not budget.believed:
            self.warn_once(
                f"usage {model}", f"{model} reports an implausible usage; crushpy uses its own estimate (~)."
            )
        if budget.clamped and not self._session.info.breaker.told:
            self.warn_once(
                f"clamped {self._session.info.id}",
                f"The estimate exceeds the {budget.window:,} tokens of {model}.",
            )


class Thresholds:
    """The shares of the window at which a session ends by itself. Computed on each access: settings and
    compaction method may change between two requests."""

    def __init__(self, settings: Callable[[], Settings], session: LiveSession) -> None:
        self._settings = settings
        self._session = session

    @property
    def trigger(self) -> CompactionTrigger:
        """The trigger recorded for a boundary at the threshold."""
        return "fallback" if self._session.info.compaction == "llm" else "auto"

    @property
    def in_force(self) -> float | None:
        """The share at which the session ends; None if only an overflow ends it."""
        compaction = self._settings().compaction
        if self.trigger == "fallback":
            return compaction.fallback_threshold
        model = self._settings().models.get(self._session.info.model)
        threshold = threshold_of(compaction.threshold, model.threshold if model else None)
        if threshold is not None and self._session.held:
            return max(threshold, compaction.fallback_threshold)
        return threshold

    def moment(
        self, budget: Budget, history: Sequence[Message], before: Iterable[Todo], now: Iterable[Todo]
    ) -> str:
        """The natural moment that the history ends with, if the window is full enough for one."""
        compaction, threshold = self._settings().compaction, self.in_force
        counts = compaction.moments and threshold is not None and threshold > compaction.soft_threshold
        if not counts or self._session.held or not budget.reaches(compaction.soft_threshold):
            return ""
        return moment_at(history, before, now)

    def next_step(
        self, budget: Budget, moment: str, *, cannot_help: Callable[[], bool], is_ready: Callable[[], bool]
    ) -> NextStep:
        """What a model call begins with. `is_ready`: whether a boundary need not wait for its summary."""
        threshold = self.in_force
        if threshold is not None and budget.reaches(threshold):
            return "too_large" if cannot_help() else "boundary"
        if self.trigger == "fallback":
            return "wait"
        return "moment" if moment and is_ready() else "prepare"

    def preparation(self, budget: Budget, expected: float, moment: str) -> Literal["", "early", "due"]:
        """Whether to begin a preparation, if `expected` tokens are added while the summary is written."""
        threshold = self.in_force
        if self.trigger == "fallback" or not self._settings().compaction.prepare or threshold is None:
            return ""
        latest = PREPARE_BY_SHARE * threshold
        start = max(PREPARE_FROM_SHARE * threshold, min(latest, threshold - expected / budget.window))
        if not (moment or budget.reaches(start)):
            return ""
        return "due" if moment or budget.reaches(latest) else "early"

    @property
    def planned(self) -> float:
        """The share that a boundary plans for, also if no threshold is in force."""
        return self.in_force or DEFAULT_THRESHOLD


class Pace:
    """How fast the running turn fills the window."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque(maxlen=PACE_READINGS)

    def add(self, used: int) -> None:
        """A model call is about to be made with `used` tokens."""
        if self._readings and used < self._readings[-1][1]:
            self._readings.clear()
        self._readings.append((time.monotonic(), used))

    @property
    def tokens_per_second(self) -> float:
        """0 while it is unknown."""
        if not self._readings:
            return 0.0
        (start, before), (end, after) = self._readings[0], self._readings[-1]
        return (after - before) / (end - start) if end > start else 0.0


class CircuitBreaker:
    """Stops automatic boundaries after two in a row that did not get under the threshold.

    Judged by the usage that the provider reports after a boundary. The state is stored with the session and
    carried across boundaries, so that one prompt per process cannot make boundaries forever.
    """

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._not_before = 0.0

    async def reported(self, used: int, limit: float) -> bool:
        """Judges a boundary by the first report after it. True if this stops further boundaries."""
        state = self._session.info.breaker
        if not state.unjudged:
            return False
        in_vain = state.in_vain + 1 if used >= limit else 0
        stops = in_vain >= MAX_FUTILE_BOUNDARIES
        await self.update(in_vain=in_vain, unjudged=False, stopped_at=used if stops else None)
        return stops

    def postponed(self) -> None:
        self._not_before = time.monotonic() + RETRY_AFTER_S

    async def rearm(self) -> None:
        """Allows boundaries again, after growth or on the user's request."""
        await self.update(in_vain=0, stopped_at=None)

    async def reset(self) -> None:
        """Forgets everything: the model or the history changed."""
        await self._session.set_breaker(BreakerState())

    async def blocks(self, used: int) -> bool:
        stopped_at = self._session.info.breaker.stopped_at
        if stopped_at is not None and used >= REARM_GROWTH * stopped_at:
            await self.rearm()
            stopped_at = None
        return stopped_at is not None or time.monotonic() < self._not_before

    async def update(self, **changes: object) -> None:
        await self._session.set_breaker(msgspec.structs.replace(self._session.info.breaker, **changes))
