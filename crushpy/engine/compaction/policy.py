"""When a session ends: at its threshold, at the agent's word or at the user's. How is in `boundary.py`."""

import logging
from collections.abc import Callable

from crushpy.context.moments import moment_at
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Event, Notice
from crushpy.core.messages import Message, ToolResult
from crushpy.core.templates import Template
from crushpy.engine.compaction.boundary import BoundaryBuilder
from crushpy.engine.compaction.boundary_record import BoundaryOptions, Declined, Rehearsal
from crushpy.engine.compaction.circuit_breaker import CircuitBreaker
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.compaction.thresholds import Thresholds
from crushpy.engine.compaction.view import ContextView, WindowState
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.settings import Settings
from crushpy.storage.records import StorageError

log = logging.getLogger(__name__)


class CompactionPolicy:
    """Decides for one session. A boundary before a model call never stops the turn: a failure is a notice."""

    def __init__(
        self,
        session: LiveSession,
        view: ContextView,
        thresholds: Thresholds,
        models: Models,
        gauge: Gauge,
        builder: BoundaryBuilder,
        preparations: Preparations,
        settings: Callable[[], Settings],
        emit: Callable[[Event], None],
        *,
        interactive: bool,
    ) -> None:
        self._session = session
        self._view = view
        self._thresholds = thresholds
        self._models = models
        self._gauge = gauge
        self._builder = builder
        self._preparations = preparations
        self._settings = settings
        self._emit = emit
        self._interactive = interactive
        self._breaker = CircuitBreaker(session)
        self._todos = session.info.todos
        """As they were at the last call."""

    # --- by itself --------------------------------------------------------------------------------------

    async def before_call(self) -> None:
        """Ends the session where its window is full enough, and goes on in a child.

        Under `llm` this is the safety net, at a threshold of its own. Under `auto` the boundary is prepared
        a little earlier, and a natural moment may be the time for one that is ready.
        """
        self._view.moment = ""
        threshold = self._thresholds.in_force
        if threshold is None:
            return
        state = await self._view.settled(threshold)
        moment = self._moment(state)
        if await self._breaker.blocks(state.budget.used):
            return
        if state.budget.reaches(threshold) and self._builder.hopeless(state):
            await self._say_floor(state, "A fresh start would not help, so none is made.")
        elif state.budget.reaches(threshold):
            await self._cross(BoundaryOptions(self._thresholds.trigger, review=self._asks_first), state)
        elif self._thresholds.trigger == "fallback":
            self._view.moment = moment
        elif moment and not self._asks_first and self._preparations.ready(state):
            await self._cross(BoundaryOptions("auto", moment=moment), state)
        else:
            self._preparations.check(state)
            self._prepare(state, moment)

    def _moment(self, state: WindowState) -> str:
        """The natural moment this is, where the window is full enough for one to count."""
        before, self._todos = self._todos, self._session.info.todos
        soft = self._thresholds.soft
        if soft is None or not state.budget.reaches(soft):
            return ""
        return moment_at(self._session.history, before, self._todos)

    def _prepare(self, state: WindowState, moment: str = "") -> None:
        """Has the next summary made in the background, at a moment or where the window is nearly full."""
        start = self._thresholds.prepared_from
        due = start is not None and (moment or state.budget.reaches(start))
        if due and self._may_prepare and not self._builder.hopeless(state):
            self._preparations.begin(moment)

    @property
    def _may_prepare(self) -> bool:
        """Not on a server of the user's own that the agent needs itself: its next call would have to wait."""
        main = self._session.info.model
        writer = self._settings().compaction.model or main
        return not (self._models.serves_one_at_a_time(main) and self._models.serves_one_at_a_time(writer))

    async def _cross(self, options: BoundaryOptions, state: WindowState) -> None:
        try:
            if not await self._builder.make(options, state):
                self._say_nothing_to_compact(state)
        except Postponed as error:
            self._pause(f"Not compacted now, tried again in a minute: {error.message}")
        except Declined:
            self._breaker.postponed()
            self._emit(Notice("The fresh start was declined."))
        except Exception as error:  # a failure here must not stop the turn; what is stored is unchanged
            log.exception("compaction failed")
            reason = error.message if isinstance(error, CrushpyError) else f"{type(error).__name__}: {error}"
            self._pause(f"Not compacted: {reason}")

    @property
    def _asks_first(self) -> bool:
        return self._interactive and self._settings().compaction.review == "ask"

    def _pause(self, text: str) -> None:
        self._breaker.postponed()
        self._emit(Notice(text, "warning"))

    async def after_reply(self, message: Message) -> None:
        """Takes note of what a reply used. Its message is the last of the history by now."""
        self._builder.replied()
        self._gauge.reported(message.usage, len(self._view.shown()))
        state = self._view.now()
        self._models.learn_ratio(message.model, self._gauge.calibration, counted=self._gauge.exact)
        if message.usage is not None:
            self._models.accepted(message.model, message.usage.total - message.usage.output_tokens)
            await self._session.first_report(message.usage.total)
        self._view.explain(state.budget)
        threshold = self._thresholds.in_force
        if threshold is None:
            return
        if await self._breaker.reported(state.budget.used, threshold * state.budget.window):
            await self._say_floor(
                state, "Two fresh starts in a row did not get below the threshold; no more are made."
            )
        if not await self._breaker.blocks(state.budget.used) and self._goes_on(message, state, threshold):
            self._prepare(state)

    def _goes_on(self, message: Message, state: WindowState, threshold: float) -> bool:
        """Whether there is time to prepare before the next call. A run that ends here needs no next session,
        but a user reads the reply and may well go on."""
        if message.calls:
            return not state.budget.reaches(threshold)
        return self._interactive

    def _say_nothing_to_compact(self, state: WindowState) -> None:
        self._view.tell_once(
            f"floor {self._session.info.id}",
            f"There is nothing to compact: system prompt and tools take {state.fixed_tokens:,} of "
            f"{state.budget.window:,} tokens, and the rest is the current request. Use a model with a larger "
            "window, or ask for less at once.",
        )

    async def _say_floor(self, state: WindowState, why: str) -> None:
        """Once in a conversation: what fills the window, and the way out."""
        if not await self._breaker.first_time():
            return
        budget, fixed = state.budget, state.fixed_tokens
        prompt, left = self._gauge.count(state.request.system), max(0, budget.window - fixed)
        self._emit(
            Notice(
                f"{why} System prompt and tools alone take {fixed:,} of {budget.window:,} tokens (prompt "
                f"{prompt:,}, tools {max(0, fixed - prompt):,}): {left:,} remain for the conversation. "
                "Use a model with a larger window, fewer tools or fewer context files; "
                "/compact starts afresh all the same.",
                "warning",
            )
        )

    # --- asked for --------------------------------------------------------------------------------------

    async def new_session(
        self, answers: ToolResult, summary: str, on_stored: Callable[[ToolResult], None]
    ) -> str:
        """The agent's own `new_session`. Empty where the child is open, else why there is none."""
        options = BoundaryOptions(
            "agent", summary=summary, answers=answers, on_stored=on_stored, review=self._asks_first
        )
        state = await self._view.counted()
        too_long = self._builder.too_long(summary, state)
        if too_long:
            return too_long
        try:
            await self._builder.make(options, state)
        except Declined as declined:
            words = f"The user declined the fresh start. {declined.words}".strip()
            return f"{words} Carry on in this session."
        except StorageError as error:
            return f"The fresh start could not be stored: {error.message} Carry on in this session."
        except Postponed as error:  # after a review that asked for another summary
            return f"The fresh start could not be made: {error.message} Carry on in this session."
        return ""  # there is always something to leave behind: the call itself

    async def compact(
        self, focus: str = "", summary: str = "", *, review: bool = False, template: Template | None = None
    ) -> bool:
        """By hand: with words for the summariser, or with the user's own summary. False: nothing to do."""
        await self._breaker.rearm()
        options = BoundaryOptions("manual", focus=focus, summary=summary, review=review, template=template)
        made = await self._builder.make(options, await self._view.counted())
        if not made:
            self._emit(Notice("There is nothing to compact yet."))
        return made

    async def rehearse(self, focus: str = "", template: Template | None = None) -> Rehearsal | None:
        """What `compact` would carry over, with another template if given. Changes nothing."""
        options = BoundaryOptions("manual", focus=focus, template=template)
        return await self._builder.rehearse(options, await self._view.counted())

    async def model_replaced(self) -> None:
        """Another model: the old reading is void, and trying again makes sense."""
        self._gauge.void()
        await self._breaker.reset()
        self._preparations.discard()

    def history_replaced(self) -> None:
        """Another history, after an undo or an edit: so is what was prepared."""
        self._gauge.void()
        self._preparations.renew()

    async def rearm(self) -> None:
        """A fresh start was taken back: another one may help."""
        await self._breaker.reset()

    def method_replaced(self) -> None:
        """Who decides is another now: only crushpy prepares."""
        if self._thresholds.trigger == "fallback":
            self._preparations.discard()

    @property
    def preparation(self) -> str:
        """Whether the next boundary is preparing or ready; empty where neither."""
        return self._preparations.state

    async def close(self) -> None:
        """Ends what is done in the background."""
        await self._preparations.close()
