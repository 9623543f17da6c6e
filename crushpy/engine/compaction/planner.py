"""Works out a boundary before it is made: how large its parts may be, where to split, what to ask."""

from collections.abc import Callable

import msgspec

from crushpy.context.cuts import apply_cuts
from crushpy.context.pins import CarriedPins
from crushpy.context.plan import FRAME, Plan, TokenBudget, make_plan, plan_after
from crushpy.engine.compaction.boundary_record import BoundaryOptions
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.pin_service import PinService
from crushpy.engine.compaction.summarizer import SummaryJob
from crushpy.engine.compaction.thresholds import Thresholds
from crushpy.engine.compaction.view import WindowState
from crushpy.engine.session.session import LiveSession
from crushpy.settings import Settings


class BoundaryPlanner:
    """For one session, as it is at the moment of asking. Changes nothing."""

    def __init__(
        self,
        session: LiveSession,
        settings: Callable[[], Settings],
        gauge: Gauge,
        thresholds: Thresholds,
        board: PinService | None = None,
    ) -> None:
        """Without a `board` nothing is pinned: the tasks of a conversation do not get its pins."""
        self._session = session
        self._settings = settings
        self._gauge = gauge
        self._thresholds = thresholds
        self._board = board
        self.pins = CarriedPins()

    async def read_pins(self) -> None:
        """Reads what is pinned as it is now; whatever is planned from here on leaves room for it."""
        if self._board is not None:
            self.pins = await self._board.carried()

    def token_budget(self, state: WindowState) -> TokenBudget:
        chosen = self._settings().compaction
        return TokenBudget(
            state.budget.window,
            self._thresholds.planned,
            chosen.keep_recent_tokens,
            chosen.summary_tokens,
            chosen.evidence_tokens,
            state.fixed_tokens,
            self._gauge.count(self.pins.text),
        )

    def plan(self, options: BoundaryOptions, limits: TokenBudget) -> Plan:
        history = self._session.history
        plan = make_plan(
            apply_cuts(history, self._session.cuts),
            limits,
            has_seed=self._session.seed is not None,
            size=self._gauge.size,
            count=self._gauge.count,
            minimal_tail=options.minimal_tail,
        )
        plan = self._with_stored_middle(plan)
        if not options.summary:
            return plan
        # The agent or the user wrote what to carry: no tail beside their own words.
        parts = plan.parts
        stored = {message.id: message for message in history}
        everything = (*parts.middle, *(stored[message.id] for message in parts.tail))
        room = limits.carried - FRAME - limits.pinned - self._gauge.count(options.summary)
        return msgspec.structs.replace(
            plan,
            parts=msgspec.structs.replace(parts, middle=everything, tail=()),
            quotes="",
            evidence_tokens=max(0, min(limits.evidence, room)),
        )

    def plan_after(
        self, summarised: int, limits: TokenBudget, expected: int, summary: str | None = None
    ) -> Plan | None:
        """The plan where the first messages are summarised already, or will be in `expected` tokens.

        None where what came since is too large to be carried as it is.
        """
        plan = plan_after(
            apply_cuts(self._session.history, self._session.cuts),
            limits,
            summarised=summarised,
            has_seed=self._session.seed is not None,
            summary_size=expected if summary is None else self._gauge.count(summary),
            size=self._gauge.size,
            count=self._gauge.count,
        )
        return None if plan is None else self._with_stored_middle(plan)

    def _with_stored_middle(self, plan: Plan) -> Plan:
        """A summariser reads the stored bodies, not the cut ones."""
        stored = {message.id: message for message in self._session.history}
        middle = tuple(stored[message.id] for message in plan.parts.middle)
        return msgspec.structs.replace(plan, parts=msgspec.structs.replace(plan.parts, middle=middle))

    def summary_job(self, options: BoundaryOptions, plan: Plan, focus: str = "") -> SummaryJob:
        """What a summariser is asked for the middle of `plan`."""
        info, seed = self._session.info, self._session.seed
        chosen = self._settings().compaction
        return SummaryJob(
            middle=plan.parts.middle,
            previous=seed.notes if seed else "",
            target_tokens=plan.summary_tokens,
            names={
                "focus": focus,
                "todos": [{"text": todo.text, "status": todo.status} for todo in info.todos],
                "cwd": info.cwd,
                "method": info.compaction,
            },
            main_model=info.model,
            seconds=chosen.summary_seconds,
            auxiliary=chosen.model,
            template=options.template,
        )
