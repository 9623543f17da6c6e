"""What to do when a provider says that a request is too large: shrink it, three times at most."""

from collections.abc import Callable

from crushpy.context.cuts import truncate_oldest
from crushpy.core.events import Event, Notice
from crushpy.core.messages import Message
from crushpy.engine.compaction.boundary import BoundaryBuilder
from crushpy.engine.compaction.boundary_record import BoundaryOptions
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.view import ContextView, WindowState
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.llm.errors import ContextOverflow

MAX_ATTEMPTS = 3
WAY_OUT = "Use a model with a larger window, ask for less at once, or start a new conversation."


class OverflowRecovery:
    """First cuts old results, then compacts, then carries evidence alone. A reply starts the count anew."""

    def __init__(
        self,
        session: LiveSession,
        models: Models,
        view: ContextView,
        gauge: Gauge,
        builder: BoundaryBuilder,
        emit: Callable[[Event], None],
    ) -> None:
        self._session = session
        self._models = models
        self._view = view
        self._gauge = gauge
        self._builder = builder
        self._emit = emit
        self._attempts = 0

    def replied(self) -> None:
        self._attempts = 0

    async def shrink(self, error: ContextOverflow) -> None:
        """Makes the next request smaller than the one that was refused; raises where nothing helps."""
        if error.limit:
            self._models.learn_window(self._session.info.model, error.limit)
        while self._attempts < MAX_ATTEMPTS:
            self._attempts += 1
            if await self._attempt(self._attempts):
                return
        raise ContextOverflow(self._too_large(self._view.now()), WAY_OUT, limit=error.limit) from error

    async def _attempt(self, number: int) -> bool:
        if number == 1:
            return await self._cut_results()
        last = number == MAX_ATTEMPTS
        options = BoundaryOptions("overflow", may_postpone=False, evidence_only=last, minimal_tail=last)
        return await self._builder.make(options, await self._view.counted())

    async def _cut_results(self) -> bool:
        """Cuts the oldest large results until a quarter of the whole request is gone."""
        state = await self._view.counted()
        goal = (state.fixed_tokens + sum(map(self._gauge.size, state.history))) // 4
        saved = 0

        def enough(before: Message, after: Message) -> bool:
            nonlocal saved
            saved += self._gauge.size(before) - self._gauge.size(after)
            return saved >= goal

        cuts = truncate_oldest(state.history, self._session.cuts, enough=enough)
        if not cuts or saved <= 0:
            return False
        await self._session.add_cuts(cuts)
        self._gauge.void()
        self._emit(Notice(f"The window was full: {len(cuts)} large tool results are shown shortened."))
        return True

    def _too_large(self, state: WindowState) -> str:
        text = (
            f"The request does not fit the window of {state.request.model} ({state.budget.window:,} tokens): "
            f"system prompt and tools take {state.fixed_tokens:,}"
        )
        if state.history:
            largest = max(state.history, key=self._gauge.size)
            size = self._gauge.size(largest)
            text += f", the largest message ({largest.role}, {largest.id}) takes {size:,}"
        return f"{text}."
