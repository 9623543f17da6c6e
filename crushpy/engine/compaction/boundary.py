"""Makes a boundary: ends the session at the tip and opens its child, in one transaction.

When is decided by `policy.py` and `overflow.py`; here is how: plan, evidence, summary, review, store.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from crushpy.context.coverage import lineage_coverage, measure
from crushpy.context.cuts import apply_cuts, overlay
from crushpy.context.earlier_notes import left_out
from crushpy.context.evidence import WorkspaceSnapshot, build_evidence
from crushpy.context.ledger import Ledger
from crushpy.context.message_facts import NOTHING
from crushpy.context.plan import FRAME, Plan, TokenBudget, cuts_to_fit
from crushpy.context.render import message_text, seed_text
from crushpy.core.events import MAKING_SUMMARY, Compacting, Event, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import EarlierNote, Message, Seed, to_json
from crushpy.engine.compaction.boundary_record import (
    BoundaryOptions,
    ChildStart,
    Declined,
    Rehearsal,
    boundary_event,
    boundary_record,
    child_of,
    counts,
)
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.lineage_ledger import lineage_ledger
from crushpy.engine.compaction.planner import BoundaryPlanner
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.review import ReviewGate
from crushpy.engine.compaction.summarizer import Summarizer, Summary
from crushpy.engine.compaction.view import WindowState
from crushpy.engine.progress_reporter import ProgressReporter
from crushpy.engine.session.session import LiveSession, LoadedSession, result_message
from crushpy.security.redact import redact
from crushpy.storage.store import Store
from crushpy.util.uncancellable import uncancellable


class BoundaryBuilder:
    """Everything a boundary needs, for one conversation."""

    def __init__(
        self,
        session: LiveSession,
        store: Store,
        planner: BoundaryPlanner,
        gauge: Gauge,
        summarizer: Summarizer,
        preparations: Preparations,
        reviews: ReviewGate,
        snapshot: Callable[[], Awaitable[WorkspaceSnapshot]],
        emit: Callable[[Event], None],
    ) -> None:
        self._session = session
        self._store = store
        self._planner = planner
        self._gauge = gauge
        self._summarizer = summarizer
        self._preparations = preparations
        self._reviews = reviews
        self._snapshot = snapshot
        self._emit = emit

    async def make(self, options: BoundaryOptions, state: WindowState) -> bool:
        """Ends the session and goes on in its child. False where there is nothing to leave behind.

        Raises Postponed, Declined and StorageError; then, and when it is cancelled before it is stored,
        nothing has changed.
        """
        started = time.monotonic() - self._reviews.seconds  # how long the user reads is no cost of it
        await self._planner.read_pins()
        limits = self._planner.token_budget(state)
        begun = self._preparations.plan(options, state)
        ready = self._preparations.state == "ready"
        plan = begun or self._planner.plan(options, limits)
        if not plan.parts.middle:
            return False
        self._emit(Compacting(options.trigger))
        ledger = await lineage_ledger(self._session, self._store, keep=True)
        seed, summary = await self._compose(options, ledger, limits, plan, state, begun=begun is not None)
        start = await asyncio.to_thread(self._child_start, seed, ledger, plan, limits)
        carried = {message.id for message in plan.parts.tail}
        tail = tuple(message for message in self._session.history if message.id in carried)
        now = time.time()
        child = child_of(self._session.info, now, options.trigger)
        seed_message = Message(id=new_id(), role="user", parts=(seed,), created_at=now)
        boundary = boundary_record(
            options, self._session.info.id, child.id, now, plan, summary, start.coverage
        )
        waited = time.monotonic() - self._reviews.seconds - started
        boundary = msgspec.structs.replace(
            boundary,
            tokens_before=state.budget.used,
            tokens_after=start.tokens,
            lineage=start.lineage,
            seconds=round(max(waited, summary.seconds), 3),
            prepared=ready and summary.counted,
            waited_ms=round(waited * 1_000),
        )
        answer, facts = None, {seed_message.id: NOTHING}
        if options.answers is not None:
            told = f"continued in {child.id}"
            answer = result_message(msgspec.structs.replace(options.answers, text=told))
            facts[answer.id] = self._session.facts_of(answer)

        async def commit() -> None:
            if summary.usage.total and not summary.counted:
                await self._session.count(summary.usage)
            await self._store.boundaries.add(
                boundary,
                child,
                seed_message,
                cuts=start.cuts,
                result=answer,
                ledger=to_json(ledger).decode(),
                facts=facts,
            )
            self._gauge.void()
            self._preparations.boundary_made(used=summary.counted)
            if answer is not None and answer.result is not None:
                options.on_stored(answer.result)
            self._emit(boundary_event(boundary, start.coverage, seed))
            self._session.continue_in(
                LoadedSession(
                    child,
                    (seed_message, *tail),
                    start.cuts,
                    inherited=1 + len(tail),
                    before=self._session.usage,
                )
            )

        await uncancellable(commit())
        for warning in self._planner.pins.warnings:
            self._emit(Notice(warning, "warning"))
        if summary.problem and not summary.text:
            self._emit(
                Notice(
                    f"No summary could be written ({summary.problem}); the evidence stands alone.", "warning"
                )
            )
        return True

    def hopeless(self, state: WindowState) -> bool:
        """Whether the fixed part leaves no child room below its threshold, however little it carries.

        A ratio above two is rather a strange report than a tokenizer: there the breaker judges.
        """
        limits = self._planner.token_budget(state)
        fixed = int(limits.fixed_tokens / max(1.0, (self._gauge.calibration.ratio or 1.0) / 2))
        return msgspec.structs.replace(limits, fixed_tokens=fixed).carried <= FRAME

    def too_long(self, summary: str, state: WindowState) -> str:
        """Why a summary cannot be carried as it is; empty where it can."""
        size, most = self._gauge.count(summary), self._planner.token_budget(state).longest_summary
        if size <= most:
            return ""
        return (
            f"The summary has {size:,} tokens; at most {most:,} are carried over. Nothing has changed. "
            "Shorten it: what is stored can be found with recall."
        )

    def replied(self) -> None:
        """A model call of the session came through."""
        self._summarizer.replied()

    async def rehearse(self, options: BoundaryOptions, state: WindowState) -> Rehearsal | None:
        """What `make` would carry over; nothing is changed. None where there is nothing to leave behind."""
        await self._planner.read_pins()
        limits = self._planner.token_budget(state)
        plan = self._planner.plan(options, limits)
        if not plan.parts.middle:
            return None
        ledger = await lineage_ledger(self._session, self._store, keep=False)
        seed, summary = await self._compose(options, ledger, limits, plan, state)
        start = await asyncio.to_thread(self._child_start, seed, ledger, plan, limits)
        return Rehearsal(
            text=seed_text(seed),
            summary=seed.summary,
            tokens_before=state.budget.used,
            tokens_after=start.tokens,
            messages=len(plan.parts.middle),
            tail=len(plan.parts.tail),
            cost=summary.usage.cost,
            coverage=counts(start.coverage),
            share=start.coverage.share,
            prose_share=start.coverage.prose_share,
            problem=summary.problem,
        )

    def _child_start(self, seed: Seed, ledger: Ledger, plan: Plan, limits: TokenBudget) -> ChildStart:
        """What the child starts with: how its tail is shown, how large it is, what of the middle it holds."""
        before = self._session.seed
        text = seed_text(seed)
        size = self._gauge.count(text)
        cuts = {
            cut.message_id: cut for cut in cuts_to_fit(plan, limits, text_tokens=size, size=self._gauge.size)
        }
        shown = apply_cuts(plan.parts.tail, cuts)
        before_cuts = self._session.cuts
        kept = {m.id: before_cuts[m.id] for m in plan.parts.tail if overlay(before_cuts, m.id)}
        carried = "\n".join((text, *map(message_text, shown)))
        return ChildStart(
            tuple({**kept, **cuts}.values()),
            limits.fixed_tokens + size + sum(map(self._gauge.size, shown)),
            measure(
                plan.parts.middle,
                seed.summary,
                carried,
                cwd=self._session.info.cwd,
                notes=before.notes if before else "",
                pins=self._planner.pins.facts,
            ),
            lineage_coverage(ledger, carried, cwd=self._session.info.cwd),
        )

    async def _compose(
        self,
        options: BoundaryOptions,
        ledger: Ledger,
        limits: TokenBudget,
        plan: Plan,
        state: WindowState,
        *,
        begun: bool = False,
    ) -> tuple[Seed, Summary]:
        """The child's first message. With a review, until the user accepts it. `begun`: a preparation of
        this plan is there or on its way."""
        evidence = await self._evidence(ledger, plan, limits)
        focus, written = options.focus, options.summary
        while True:
            if written:
                summary = Summary(text=written)
            elif options.evidence_only:
                summary = Summary()
            else:
                summary = await self._summarize(options, plan, focus, begun=begun)
                begun = False
            seed = self._seed(redact(summary.text), evidence, plan, limits, written=bool(written))
            if not options.review:
                return seed, summary
            after = (await asyncio.to_thread(self._child_start, seed, ledger, plan, limits)).tokens
            answer = await self._reviews.ask(options.trigger, seed, state.budget.used, after)
            if answer.kind == "decline":
                raise Declined(answer.text)
            if answer.kind == "accept":
                if answer.text.strip() and answer.text != summary.text:
                    source = "edited" if summary.text else "user"
                    summary = msgspec.structs.replace(summary, text=answer.text, source=source)
                return self._seed(
                    redact(summary.text), evidence, plan, limits, written=bool(written)
                ), summary
            written, focus = "", "\n".join(part for part in (options.focus, answer.text) if part)

    def _seed(self, summary: str, evidence: str, plan: Plan, limits: TokenBudget, *, written: bool) -> Seed:
        """A summariser updates the notes before it. Who writes a summary by hand may leave out what still
        holds, and without a summary nothing would be left of them."""
        before = self._session.seed
        earlier: tuple[EarlierNote, ...] = ()
        if before is not None and (written or not summary):
            earlier = left_out(
                before.summary,
                before.earlier,
                summary,
                limit=limits.summary_target // 2,
                count=self._gauge.count,
            )
        return Seed(summary, evidence, plan.quotes, earlier, self._planner.pins.text)

    async def _summarize(self, options: BoundaryOptions, plan: Plan, focus: str, *, begun: bool) -> Summary:
        may_postpone = options.may_postpone
        with ProgressReporter(self._emit, MAKING_SUMMARY) as work:
            if begun:
                prepared = await self._preparations.summary(work.at, may_postpone=may_postpone)
                if prepared is not None:
                    return prepared
            job = self._planner.summary_job(options, plan, focus)
            with self._summarizer.progress.watched(work.at):
                return await self._summarizer.run(job, may_postpone=may_postpone)

    async def _evidence(self, ledger: Ledger, plan: Plan, limits: TokenBudget) -> str:
        return await asyncio.to_thread(  # a long lineage takes its time, and the screen must not wait for it
            build_evidence,
            ledger,
            await self._snapshot(),
            limit=plan.evidence_tokens,
            request_limit=limits.request,
            count=self._gauge.count,
            redact=redact,
        )
