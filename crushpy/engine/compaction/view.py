"""The context of one session as it is now: the next request, and how full the window is."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from crushpy.context.budget import Budget, output_limit
from crushpy.context.cuts import apply_cuts
from crushpy.context.inspect import Inspection, inspect
from crushpy.context.sent_history import SentHistory
from crushpy.context.status import status_text
from crushpy.core.events import Event, Notice
from crushpy.core.messages import Data, Message, to_json
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.llm.protocol import Request


class WindowState(Data, frozen=True):
    """What would be sent now, and how full that makes the window."""

    history: tuple[Message, ...]
    """As a request shows it: with the cuts that were made."""
    request: Request
    """Without its messages: those are put together when it is sent."""
    budget: Budget
    fixed_tokens: int
    """Of the system prompt and the tools: what no boundary can make smaller."""


class ContextView:
    """Everything that is asked about a session's context, without changing it."""

    def __init__(
        self,
        session: LiveSession,
        models: Models,
        gauge: Gauge,
        emit: Callable[[Event], None],
        *,
        told: set[str],
    ) -> None:
        """`told` is what the user was told once already, by any agent of the conversation."""
        self._session = session
        self._models = models
        self._gauge = gauge
        self._emit = emit
        self._told = told
        self._sent = SentHistory()
        self._read: list[Message] | None = None
        self._messages: tuple[Message, ...] = ()
        self.moment = ""
        """The natural moment at which the next request is made; in `llm` the status names it."""

    def now(self) -> WindowState:
        """The state by the figures at hand: cheap at any moment."""
        return self._state(self.shown())

    def shown(self, pending: Sequence[Message] = ()) -> tuple[Message, ...]:
        """The history as a request shows it: with the cuts that were made, and for the eyes of its model."""
        model, cuts = self._session.info.model, self._session.cuts
        self._sent.update(
            self._taken(pending),
            (dict(cuts), self._models.sees(model)),
            lambda messages: self._models.as_seen(model, apply_cuts(messages, cuts)),
        )
        return self._sent.shown

    def _taken(self, pending: Sequence[Message]) -> tuple[Message, ...]:
        """All messages, as the same object until there are others: a history grows, or is another one."""
        history = self._session.history
        if pending:
            return (*history, *pending)
        if history is not self._read or len(history) != len(self._messages):
            self._read, self._messages = history, tuple(history)
        return self._messages

    async def counted(self) -> WindowState:
        """The state by exact figures: waits for the vocabulary, where there is one."""
        await asyncio.to_thread(self._gauge.load_for, self.shown())
        return self.now()

    async def settled(self, threshold: float) -> WindowState:
        """The state, counted exactly where it might reach `threshold`."""
        state = self.now()
        budget = await self._gauge.settled(state.request, state.history, threshold)
        return WindowState(state.history, state.request, budget, self._gauge.fixed_tokens(state.request))

    def _state(self, history: tuple[Message, ...]) -> WindowState:
        request = self._models.request(self._session.info, ())
        budget = self._gauge.reading(request, history)
        return WindowState(history, request, budget, self._gauge.fixed_tokens(request))

    def next_request(self, pending: Sequence[Message] = ()) -> Request:
        """The next model call; in `llm` with the status of this very moment. `pending` is not stored yet."""
        state = self._state(self.shown(pending))
        info, limit = self._session.info, state.request.max_output_tokens
        self.explain(state.budget)
        return msgspec.structs.replace(
            state.request,
            messages=self._sent.valid,
            status=status_text(state.budget, self.moment) if info.compaction == "llm" else "",
            status_placement=self._models.placement(info.model),
            max_output_tokens=output_limit(state.budget, limit) if limit else None,
        )

    def inspect(self) -> Inspection:
        """What fills the window, part by part."""
        state = self.now()
        return inspect(
            state.request.system,
            [(tool.name, to_json(tool).decode()) for tool in state.request.tools],
            self._session.history,
            state.budget,
            count=self._gauge.count,
            size=self._gauge.size,
            cuts=self._session.cuts,
            cwd=self._session.info.cwd,
            cached=self._gauge.cached,
        )

    def tell_once(self, key: str, text: str) -> None:
        """A warning that the user sees once in a conversation, however often it holds."""
        if key not in self._told and self._session.stored:
            self._told.add(key)
            self._emit(Notice(text, "warning"))

    def explain(self, budget: Budget) -> None:
        """What the user should know of these figures, once."""
        model = self._session.info.model
        if self._models.learning_problem:
            self.tell_once("learning", self._models.learning_problem)
        if not budget.window_known and self._session.stored and self._models.doubts_window(model):
            self.tell_once(
                f"window {model}",
                f"The window of {model} is not known; {budget.window:,} tokens are assumed. "
                f"""Set it: crushpy config set 'models."{model}".context_window' NUMBER""",
            )
        if not budget.believed:
            self.tell_once(
                f"usage {model}",
                f"{model} reports a usage that cannot be right; crushpy goes by its own estimate (~).",
            )
        if budget.clamped and not self._session.info.breaker.told:
            self.tell_once(
                f"clamped {self._session.info.id}",
                f"By our figures more than all {budget.window:,} tokens of {model} are in use.",
            )
