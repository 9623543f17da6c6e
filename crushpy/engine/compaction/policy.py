"""When a session ends: at its threshold, on an overflow, at the agent's or the user's request.

How is in `boundary_builder.py`.
"""

import logging

from crushpy.context.hindsight import ALL_REPLIES, FIRST_REPLIES
from crushpy.context.overrides import shorten_oldest
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Notice
from crushpy.core.messages import Message, ToolResult
from crushpy.core.templates import Template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.boundary_builder import BoundaryBuilder
from crushpy.engine.compaction.branch_service import BranchService
from crushpy.engine.compaction.draft import BoundaryOptions, Declined, OnStored, Rehearsal
from crushpy.engine.compaction.preparation import ORDINARY, SUMMARY_TIME_FACTOR, Preparations
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.compaction.window import CircuitBreaker, ContextView, Pace, Thresholds, WindowState
from crushpy.llm.errors import ContextOverflow

log = logging.getLogger(__name__)

MAX_OVERFLOW_ATTEMPTS = 3
OVERFLOW_HINT = "Use a model with a larger window, ask for less at once, or start a new conversation."


class CompactionPolicy:
    """Decides for one agent. A boundary before a model call never stops the turn: a failure is a notice."""

    def __init__(
        self,
        scope: AgentScope,
        view: ContextView,
        thresholds: Thresholds,
        builder: BoundaryBuilder,
        preparations: Preparations,
    ) -> None:
        self._scope, self._session = scope, scope.session
        self._models, self._gauge, self._emit = scope.models, scope.gauge, scope.emit
        self._view = view
        self._thresholds = thresholds
        self._builder = builder
        self.preparations = preparations
        self.breaker = CircuitBreaker(scope.session)
        self.branches = BranchService(scope, view, preparations)
        self._pace = Pace()
        self._overflow_attempts = 0
        self._todos = scope.session.info.todos
        """As they were at the previous `before_model_call`."""

    # --- automatic --------------------------------------------------------------------------------------

    async def before_model_call(self) -> None:
        """Makes a boundary if the window has reached its threshold.

        Under `llm` this is the fallback, at a threshold of its own. Under `auto` the boundary is prepared
        a little earlier, and a prepared one may be made at a natural moment.
        """
        self._view.moment = ""
        threshold = self._thresholds.in_force
        if threshold is None:
            return
        state = await self._view.settled(threshold)
        if self._session.history[-1].role == "user":
            self._pace = Pace()  # the time spent waiting for the user does not count
        self._pace.add(state.budget.used)
        before, self._todos = self._todos, self._session.info.todos
        moment = self._thresholds.moment(state.budget, self._session.history, before, self._todos)
        if await self.breaker.blocks(state.budget.used):
            return
        match self._thresholds.next_step(
            state.budget,
            moment,
            cannot_help=lambda: self._builder.cannot_help(state),
            is_ready=lambda: not self._asks_first and self.preparations.ready(state),
        ):
            case "too_large":
                await self._warn_fixed_part_too_large(state, "Compaction would not help, so it was skipped.")
            case "boundary":
                if self._models.spending is not None:  # the user is asked before the summary, not after it
                    await self._models.spending.admit(self._session.info.model, asks=True)
                trigger = self._thresholds.trigger
                options = BoundaryOptions(trigger, review=self._asks_first, threshold=threshold)
                await self._make_boundary(options, state)
            case "wait":  # in which the status names the moment
                self._view.moment = moment
            case "moment":
                await self._make_boundary(BoundaryOptions("auto", moment=moment), state)
            case "prepare":
                self.preparations.plan(ORDINARY, state)  # discards one that no longer fits
                self._prepare(state, moment)

    def _prepare(self, state: WindowState, moment: str = "") -> None:
        """Starts the next summary in the background: at a natural moment, or early enough that it is written
        when the threshold is reached."""
        expected = self._pace.tokens_per_second * SUMMARY_TIME_FACTOR * self.preparations.last_seconds
        begins = self._thresholds.preparation(state.budget, expected, moment)
        main = self._session.info.model
        writer = self._scope.settings.compaction.model or main
        if all(map(self._scope.models.has_one_slot, (main, writer))):
            return  # probably one server: the agent would have to wait
        if begins and not self._builder.cannot_help(state):
            self.preparations.begin(moment, is_early=begins == "early")

    async def _make_boundary(self, options: BoundaryOptions, state: WindowState) -> None:
        try:
            if not await self._builder.make_boundary(options, state):
                self._view.warn_once(
                    f"nothing to compact {self._session.info.id}",
                    f"There is nothing to compact: system prompt and tools take {state.fixed_tokens:,} of "
                    f"{state.budget.window:,} tokens, and the rest is the current request. Use a model with "
                    "a larger window, or ask for less at once.",
                )
        except Postponed as error:
            self.breaker.postponed()
            self._emit(Notice(f"Not compacted; retrying in a minute: {error.message}", "warning"))
        except Declined:
            self.breaker.postponed()
            self._emit(Notice("The compaction was declined."))
        except Exception as error:  # must not stop the turn; stored data is unchanged
            log.exception("compaction failed")
            reason = error.message if isinstance(error, CrushpyError) else f"{type(error).__name__}: {error}"
            self.breaker.postponed()
            self._emit(Notice(f"Not compacted: {reason}", "warning"))

    @property
    def _asks_first(self) -> bool:
        return self._scope.interactive and self._scope.settings.compaction.review == "ask"

    async def after_reply(self, message: Message) -> None:
        """Updates gauge, learnt figures and breaker with a stored reply, and may start a preparation."""
        self._overflow_attempts = 0
        if not message.calls:
            self._pace = Pace()  # the time spent waiting for the user does not count
        self._builder.summarizer.overflows = 0
        self._gauge.add_report(message.usage, len(self._view.shown()))
        state = self._view.now()
        self._models.learn_ratio(message.model, self._gauge.calibration, counted=self._gauge.exact)
        if message.usage is not None:
            self._models.accepted(message.model, message.usage.total - message.usage.output_tokens)
            await self._session.first_report(message.usage.total)
        self._view.warn_about_budget(state.budget)
        await self._look_back()
        threshold = self._thresholds.in_force
        if threshold is None:
            return
        if await self.breaker.reported(state.budget.used, threshold * state.budget.window):
            await self._warn_fixed_part_too_large(
                state,
                "Two compactions in a row did not get below the threshold; automatic compaction stopped.",
            )
        # A reply without tool calls ends a headless run, but a user may continue after reading it.
        has_time = not state.budget.reaches(threshold) if message.calls else self._scope.interactive
        if has_time and not await self.breaker.blocks(state.budget.used):
            self._prepare(state)

    async def _look_back(self) -> None:
        """Tells what was needed since this session was opened, after 20 and after 80 replies."""
        replies = sum(message.role == "assistant" for message in self._session.own_messages)
        if self._session.seed is not None and replies in (FIRST_REPLIES, ALL_REPLIES):
            from crushpy.engine.compaction.judged_boundaries import judge_session

            store, final = self._scope.services.store, replies == ALL_REPLIES
            self._emit(await judge_session(store, self._session, final=final))

    async def _warn_fixed_part_too_large(self, state: WindowState, why: str) -> None:
        """Warns once in a conversation: what fills the window, and what to do about it."""
        if self._session.info.breaker.told:
            return
        await self.breaker.update(told=True)
        budget, fixed = state.budget, state.fixed_tokens
        prompt, left = self._gauge.count(state.request.system), max(0, budget.window - fixed)
        self._emit(
            Notice(
                f"{why} System prompt and tools alone take {fixed:,} of {budget.window:,} tokens (prompt "
                f"{prompt:,}, tools {max(0, fixed - prompt):,}): {left:,} remain for the conversation. "
                "Use a model with a larger window, fewer tools or fewer context files; "
                "/compact still works.",
                "warning",
            )
        )

    # --- on an overflow ---------------------------------------------------------------------------------

    async def recover_from_overflow(self, error: ContextOverflow) -> None:
        """Makes the next request smaller than the one that was refused. Raises if nothing helps.

        First shortens old results, then compacts, then carries evidence alone. A branch returns instead.
        """
        if error.limit:
            self._models.learn_window(self._session.info.model, error.limit)
        if self.branches.opened_by_agent:
            await self.branches.close("", "overflow")
            return
        while self._overflow_attempts < MAX_OVERFLOW_ATTEMPTS:
            self._overflow_attempts += 1
            last = self._overflow_attempts == MAX_OVERFLOW_ATTEMPTS
            options = BoundaryOptions("overflow", may_postpone=False, evidence_only=last, minimal_tail=last)
            if self._overflow_attempts == 1:
                smaller = await self._shorten_results()
            else:
                smaller = await self._builder.make_boundary(options, await self._view.counted())
            if smaller:
                return
        state = self._view.now()
        text = (
            f"The request does not fit the window of {state.request.model} ({state.budget.window:,} tokens): "
            f"system prompt and tools take {state.fixed_tokens:,}"
        )
        if state.history:
            largest = max(state.history, key=self._gauge.size)
            size = self._gauge.size(largest)
            text += f", the largest message ({largest.role}, {largest.id}) takes {size:,}"
        raise ContextOverflow(f"{text}.", OVERFLOW_HINT, limit=error.limit) from error

    async def _shorten_results(self) -> bool:
        """Shortens the oldest large results until a quarter of the whole request is gone."""
        state = await self._view.counted()
        goal = (state.fixed_tokens + sum(map(self._gauge.size, state.history))) // 4
        saved = 0

        def enough(before: Message, after: Message) -> bool:
            nonlocal saved
            saved += self._gauge.size(before) - self._gauge.size(after)
            return saved >= goal

        overrides = shorten_oldest(state.history, self._session.overrides, enough=enough)
        if not overrides or saved <= 0:
            return False
        await self._session.add_overrides(overrides)
        self._gauge.reset()
        self._emit(Notice(f"The window was full: {len(overrides)} large tool results are sent shortened."))
        return True

    # --- on request -------------------------------------------------------------------------------------

    async def new_session(self, pending: ToolResult, summary: str, on_stored: OnStored) -> str:
        """The agent's `new_session`. `pending` is the result of its call. Returns why it was refused."""
        options = BoundaryOptions(
            "agent", summary=summary, pending_result=pending, on_stored=on_stored, review=self._asks_first
        )
        state = await self._view.counted()
        too_long = self._builder.too_long(summary, state)
        if too_long:
            return too_long
        try:
            await self._builder.make_boundary(options, state)
        except Declined as declined:
            return f"{declined} Carry on in this session."
        except Postponed as error:  # after a review that asked for another summary
            return f"The new session could not be opened: {error.message} Carry on in this session."
        return ""  # there is always something to leave behind: the call itself

    async def compact(self, options: BoundaryOptions) -> bool:
        """On the user's request. False if there is nothing to do."""
        await self.breaker.rearm()
        return await self._builder.make_boundary(options, await self._view.counted())

    async def rehearse(self, focus: str = "", template: Template | None = None) -> Rehearsal | None:
        """What `compact` would carry over, with `template` if given. Changes nothing."""
        options = BoundaryOptions("manual", focus=focus, template=template)
        return await self._builder.rehearse(options, await self._view.counted())

    async def model_replaced(self) -> None:
        """The model changed: invalidates the readings and resets the breaker."""
        self._gauge.reset()
        await self.breaker.reset()
        self.preparations.discard()

    def history_replaced(self) -> None:
        """The history was undone or edited: invalidates readings and preparation."""
        self._gauge.reset(edited=True)
        self.preparations.discard(renew=True)
