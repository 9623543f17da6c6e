"""Writes the summary of the next boundary ahead of time."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from crushpy.context.plan import Plan, TokenBudget
from crushpy.core.boundary import PreparationState
from crushpy.core.events import PreparationChanged
from crushpy.core.messages import Message
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.draft import BoundaryOptions, BoundaryPlanner
from crushpy.engine.compaction.summarizer import Postponed, Summarizer, Summary, SummaryJob
from crushpy.engine.compaction.window import ContextView, WindowState
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

ORDINARY = BoundaryOptions("auto")
"""What a preparation is made for: without a focus, with the template in force."""
FIRST_SUMMARY_S = 8.0
"""How long a summary is assumed to take before one was written."""
SUMMARY_TIME_FACTOR = 1.5
"""The next summary may take this much longer than the last one."""


class Preparations:
    """Writes the summary of the next boundary in the background, so that the turn need not wait for it.

    Nothing depends on it: if it fails, is late or no longer fits, the boundary is made the usual way. At most
    one preparation for each boundary of a session, whatever its outcome.
    """

    def __init__(
        self, scope: AgentScope, view: ContextView, planner: BoundaryPlanner, summarizer: Summarizer
    ) -> None:
        """`summarizer`: writes what no preparation has written."""
        self._view = view
        self._planner = planner
        # A summarizer of its own: another may be running. Its retries are not shown.
        self._summarizer = Summarizer(scope, lambda _: None, prepares_for=summarizer)
        self._emit = scope.emit
        self._begun = False
        self._moment = ""
        self.last_seconds = FIRST_SUMMARY_S
        """How long the last summary took."""
        self._frozen: tuple[tuple[Message, ...], SummaryJob] | None = None
        """Head and middle as a request shows them, and what is summarised. Valid while the session begins
        with exactly these messages: an edit makes others of them."""
        self._task: asyncio.Task[None] | None = None
        self._summary: Summary | None = None
        self._failure: Postponed | None = None

    @property
    def state(self) -> Literal["", "preparing", "ready"]:
        """Empty if there is nothing to use."""
        if self._frozen is None or self._failure is not None:
            return ""
        if self._summary is None:
            return "preparing"
        return "ready" if self._summary.text else ""

    def begin(self, moment: str = "", *, is_early: bool = False) -> None:
        """Starts a preparation in the background, unless this boundary has had one. `is_early`: messages that
        arrive until the threshold will be the tail, so that less of the present ones is kept."""
        if self._begun:
            return
        self._begun, self._moment = True, moment
        self._task = spawn(self._run(is_early))

    async def _run(self, is_early: bool) -> None:
        try:
            frozen = await self._freeze(is_early)
            if frozen is None:
                self._begun = False  # nothing to leave behind yet
                return
            self._frozen = frozen
            self._report("preparing")
            started = time.monotonic()
            summary = await self._summarizer.run(frozen[1], may_postpone=True)
            seconds = time.monotonic() - started
            if summary.text:
                self.last_seconds = seconds
            self._summary = msgspec.structs.replace(summary, seconds=seconds, prepared=True)
            self._report("ready" if summary.text else "failed")
        except Postponed as error:
            self._failure = error
            log.info("not prepared: %s", error.message)
            self._report("failed")
        except Exception:
            log.exception("a preparation failed")
            self._frozen = None
            self._report("failed")

    async def _freeze(self, is_early: bool) -> tuple[tuple[Message, ...], SummaryJob] | None:
        """The current middle; None if there is none, or no room for what follows it."""
        await self._planner.read_carried()
        state = await self._view.counted()  # last: the history must not grow between here and the plan
        limits = self._planner.token_budget(state)
        coming = max(0, int(limits.threshold * limits.window) - state.budget.used) if is_early else 0
        keep = max(0, min(limits.keep_recent_tokens, limits.window // 5) - coming)
        plan = self._planner.plan(ORDINARY, msgspec.structs.replace(limits, keep_recent_tokens=keep))
        length = len(plan.parts.head) + len(plan.parts.middle)
        if self._planner.plan_after(length, limits, limits.longest_summary + coming) is None:
            return None
        job = self._planner.summary_job(ORDINARY, plan)
        job = msgspec.structs.replace(job, template=self._summarizer.template(job))
        return state.history[:length], job

    def discard(self, why: PreparationState = "discarded", *, renew: bool = False) -> None:
        """Drops the preparation. The boundary it was made for gets no other, unless `renew`: the history was
        replaced."""
        self._begun = self._begun and not renew
        cost = self._summarizer.usage.cost
        if self._task is not None:
            self._task.cancel()
        was_usable = bool(self.state)
        self._task, self._frozen, self._summary, self._failure = None, None, None, None
        if was_usable:
            self._emit(PreparationChanged(why, self._moment, cost))

    async def close(self) -> None:
        """Cancels the call in flight, if there is one."""
        task = self._task
        self._begun, self._task, self._frozen = True, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _report(self, state: PreparationState) -> None:
        self._emit(PreparationChanged(state, self._moment, self._summarizer.usage.cost))

    def ready(self, state: WindowState) -> bool:
        """Whether a boundary made now need not wait for a summary."""
        return self.state == "ready" and self.plan(ORDINARY, state) is not None

    def plan(self, options: BoundaryOptions, state: WindowState) -> Plan | None:
        """The plan of a boundary that uses this preparation, finished or in flight; None if it cannot.

        Discards a preparation that no longer fits the session, its model or the template.
        """
        if self._frozen is None or not self.state:
            return None
        if (options.focus, options.summary, options.template) != ("", "", None):
            return None
        if options.evidence_only or options.minimal_tail:
            return None
        limits = self._planner.token_budget(state)
        plan = self._fitting(*self._frozen, state, limits)
        if plan is None:
            self.discard()
        return plan

    def _fitting(
        self, prefix: tuple[Message, ...], then: SummaryJob, state: WindowState, limits: TokenBudget
    ) -> Plan | None:
        length = len(prefix)
        if state.history[:length] != prefix:
            return None
        text = self._summary.text if self._summary is not None else None
        plan = self._planner.plan_after(length, limits, limits.summary_target, text)
        if plan is None:
            return None
        now = self._planner.summary_job(ORDINARY, plan)
        same = now.main_model == then.main_model and now.auxiliary == then.auxiliary
        same = same and now.target_tokens == then.target_tokens
        return plan if same and self._summarizer.template(now) == then.template else None

    async def summary(self, written: Callable[[int, int], None], *, may_postpone: bool) -> Summary | None:
        """The prepared summary; waits for it if it is in flight. None if there is none.

        `written` is called with the progress. Cancelling this call leaves the preparation running.
        Raises Postponed only if `may_postpone`.
        """
        task = self._task
        if task is None:
            return None
        with self._summarizer.progress.watched(written):
            await asyncio.wait([task])
        if self._failure is not None and may_postpone:
            raise self._failure
        if self._failure is not None:
            return Summary(problem=self._failure.message, prepared=True)
        return self._summary
