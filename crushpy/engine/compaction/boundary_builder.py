"""Makes a boundary: ends the session at the tip and opens its child, in one transaction.

`policy.py` decides when; this module does it, as a pipeline over one draft: plan, evidence, summary, review,
commit.
"""

import asyncio
import time
from contextlib import suppress
from copy import copy

import msgspec

from crushpy.context.carried import loaded_facts
from crushpy.context.coverage import lineage_coverage, measure
from crushpy.context.earlier_notes import unmentioned_notes
from crushpy.context.facts import NOTHING
from crushpy.context.hindsight import ALL_REPLIES, FIRST_REPLIES
from crushpy.context.overrides import apply_overrides, by_message, sent_state
from crushpy.context.plan import overrides_to_fit
from crushpy.context.render import message_text, seed_text
from crushpy.core.boundary import StoredBoundary
from crushpy.core.events import MAKING_SUMMARY, BoundaryCommitted, Compacting, Notice, boundary_event
from crushpy.core.ids import new_id
from crushpy.core.messages import EarlierNote, Message, Note, Seed, SignedSummary
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.draft import (
    BoundaryDraft,
    BoundaryOptions,
    BoundaryPlanner,
    Declined,
    Rehearsal,
    SummaryReview,
    leaves_no_room,
)
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.summarizer import Summarizer, Summary
from crushpy.engine.compaction.window import WindowState
from crushpy.engine.event_bus import ProgressReporter
from crushpy.engine.session.session import LoadedSession, child_of, result_message
from crushpy.security.redact import redact
from crushpy.security.sanitize import to_json
from crushpy.storage.records import StorageError
from crushpy.util.uncancellable import uncancellable


class BoundaryBuilder:
    def __init__(
        self,
        scope: AgentScope,
        planner: BoundaryPlanner,
        preparations: Preparations,
        summarizer: Summarizer,
    ) -> None:
        self._scope, self._session, self._gauge = scope, scope.session, scope.gauge
        self._emit = scope.emit
        self._planner = planner
        self._preparations = preparations
        self.summarizer = summarizer
        self.reviews = SummaryReview(scope.emit)

    async def make_boundary(self, options: BoundaryOptions, state: WindowState) -> bool:
        """Ends the session and continues in its child. False if there is nothing to leave behind.

        Raises Postponed, Declined and StorageError; then, and if it is cancelled before the commit, nothing
        has changed.
        """
        # `reviews.seconds` is the total time spent in reviews: subtracted at both ends, it does not count.
        started = time.monotonic() - self.reviews.seconds
        draft = await self._plan(options, state, use_preparation=True)
        if draft is None:
            return False
        was_ready = draft.from_preparation and self._preparations.state == "ready"
        self._emit(Compacting(options.trigger))
        replies = sum(message.role == "assistant" for message in self._session.own_messages)
        # The session as it is now: the commit turns it into its child.
        ended = copy(self._session) if FIRST_REPLIES <= replies < ALL_REPLIES else None
        await self._planner.ask_hooks(draft)
        draft.evidence = await self._planner.evidence(state, draft.plan)
        await self._write_seed(draft)
        waited = time.monotonic() - self.reviews.seconds - started
        # A review may have asked for another summary.
        prepared = was_ready and draft.summary.prepared
        made = await uncancellable(self._commit(draft, waited, prepared=prepared))
        rules = draft.rules.warning
        for warning in (*draft.pins.warnings, *([f"{rules[0].upper()}{rules[1:]}."] if rules else ())):
            self._emit(Notice(warning, "warning"))
        if draft.summary.problem and not draft.summary.text:
            text = f"No summary could be written ({draft.summary.problem}); only the evidence was carried."
            self._emit(Notice(text, "warning"))
        await self._planner.tell_hooks(draft, made)
        if ended is not None and ended.seed is not None:
            from crushpy.engine.compaction.judged_boundaries import judge_session

            with suppress(StorageError):  # the boundary is stored, and `sessions hindsight` judges it again
                self._emit(await judge_session(self._scope.services.store, ended, final=True))
        return True

    async def rehearse(self, options: BoundaryOptions, state: WindowState) -> Rehearsal | None:
        """What `make_boundary` would carry over; None if that is nothing. Changes nothing."""
        draft = await self._plan(options, state, use_preparation=False)
        if draft is None:
            return None
        draft.evidence = await self._planner.evidence(state, draft.plan)
        await self._write_seed(draft)
        return draft.rehearsal()

    def cannot_help(self, state: WindowState) -> bool:
        """Whether the fixed part leaves a child no room below its threshold."""
        return leaves_no_room(self._planner.token_budget(state), self._gauge.calibration.ratio)

    def too_long(self, summary: str, state: WindowState) -> str:
        """Why a summary cannot be carried as it is; empty if it can."""
        size, most = self._gauge.count(summary), self._planner.token_budget(state).longest_summary
        if size <= most:
            return ""
        return (
            f"The summary has {size:,} tokens; at most {most:,} are carried over. Nothing has changed. "
            "Shorten it: stored messages can be found with recall."
        )

    async def _plan(
        self, options: BoundaryOptions, state: WindowState, *, use_preparation: bool
    ) -> BoundaryDraft | None:
        """Splits the history. None if there is nothing to leave behind."""
        await self._planner.read_carried(store_missing=use_preparation)
        limits = self._planner.token_budget(state)
        prepared = self._preparations.plan(options, state) if use_preparation else None
        plan = prepared or self._planner.plan(options, limits)
        if not (plan.parts.middle or self._planner.earlier):
            return None
        planner = self._planner
        carried = planner.pins, planner.rules, planner.ledger, planner.loaded
        return BoundaryDraft(options, state, limits, *carried, plan, prepared is not None)

    async def _write_seed(self, draft: BoundaryDraft) -> None:
        """Writes the child's seed. Under review the user accepts the summary (maybe edited), declines the
        boundary, or asks for another summary with a further focus."""
        options = draft.options
        focus, written = options.focus, options.summary
        while True:
            if written:
                draft.summary = Summary(
                    text=written, origin="agent" if options.trigger == "agent" else "user"
                )
            elif options.evidence_only:
                draft.summary = Summary()
            else:
                draft.summary = await self._summarize(draft, focus)
                draft.from_preparation = False
            await self._compose(draft, by_hand=bool(written))
            if not options.review:
                return
            verdict = await self.reviews.ask(draft)
            if verdict.kind == "decline":
                if verdict.text and options.trigger != "agent":  # the agent's call gets it as its result
                    await self._session.add_note(Note(f"The user declined the compaction: {verdict.text}"))
                raise Declined(f"The user declined the new session. {verdict.text}".strip())
            if verdict.kind == "accept":
                if verdict.text.strip() and verdict.text != draft.summary.text:
                    origin = "edited" if draft.summary.text else "user"
                    draft.summary = msgspec.structs.replace(draft.summary, text=verdict.text, origin=origin)
                    await self._compose(draft, by_hand=bool(written))
                return
            written, focus = "", "\n".join(part for part in (options.focus, verdict.text) if part)
            self.summarizer.failed_at.clear()

    async def _summarize(self, draft: BoundaryDraft, focus: str) -> Summary:
        may_postpone = draft.options.may_postpone
        with ProgressReporter(self._emit, MAKING_SUMMARY) as progress:
            if draft.from_preparation:
                prepared = await self._preparations.summary(progress.update, may_postpone=may_postpone)
                if prepared is not None:
                    return prepared
            if draft.options.trigger == "manual":
                self.summarizer.failed_at.clear()
            job = self._planner.summary_job(draft.options, draft.plan, focus)
            with self.summarizer.progress.watched(progress.update):
                return await self.summarizer.run(job, may_postpone=may_postpone)

    async def _compose(self, draft: BoundaryDraft, *, by_hand: bool) -> None:
        draft.seed = self._seed(draft, by_hand=by_hand)
        await asyncio.to_thread(self._fit_and_measure, draft)

    def _seed(self, draft: BoundaryDraft, *, by_hand: bool) -> Seed:
        """A summariser updates the earlier notes. A summary written by hand may leave out valid ones, and
        without a summary all of them would be lost: then they are carried beside it."""
        before, summary = self._session.seed, redact(draft.summary.text)
        earlier: tuple[EarlierNote, ...] = ()
        if before is not None and (by_hand or not summary) and not self._planner.earlier:
            earlier = unmentioned_notes(
                before.summary,
                before.earlier,
                summary,
                limit=draft.limits.summary_target // 2,
                count=self._gauge.count,
            )
        carried = draft.plan.quotes, earlier, draft.pins.text, draft.rules.text
        return Seed(summary, draft.evidence, *carried, _signed(draft, summary), draft.loaded)

    def _fit_and_measure(self, draft: BoundaryDraft) -> None:
        """Shortens the tail by overrides until it fits, and measures what the child starts with."""
        before, parts = self._session.seed, draft.plan.parts
        text = seed_text(draft.seed)
        size = self._gauge.count(text)
        fitted = overrides_to_fit(draft.plan, draft.limits, text_tokens=size, size=self._gauge.size)
        overrides = by_message(fitted)
        shown = apply_overrides(parts.tail, overrides)
        known = self._session.overrides
        kept = {message.id: known[message.id] for message in parts.tail if sent_state(known, message.id)}
        carried = "\n".join((text, *map(message_text, shown)))
        cwd, left = self._session.info.cwd, {message.id for message in parts.middle}
        draft.overrides = tuple({**kept, **overrides}.values())
        first = Message(new_id(), "user", (draft.seed,))
        draft.tokens_after = self._gauge.request_size(draft.state.request, (first, *shown))
        draft.facts = measure(
            parts.middle,
            draft.seed.summary,
            carried,
            cwd=cwd,
            notes=before.notes if before and not self._planner.earlier else "",
            pins=draft.pins.facts,
            rules=draft.ledger.rules_of(left),
            loaded={"tools": draft.ledger.loaded_tools, **loaded_facts(draft.loaded)},
        )
        draft.lineage, kinds = lineage_coverage(draft.ledger, carried, prose=draft.seed.summary, cwd=cwd)
        draft.facts |= kinds

    async def _commit(self, draft: BoundaryDraft, waited: float, *, prepared: bool) -> BoundaryCommitted:
        """Stores the boundary in one transaction, then emits it and continues in the child."""
        session, options, summary = self._session, draft.options, draft.summary
        now = time.time()
        carried = {message.id for message in draft.plan.parts.tail}
        tail = tuple(message for message in session.history if message.id in carried)
        child = child_of(session.info, now, options.trigger)
        seed_message = Message(id=new_id(), role="user", parts=(draft.seed,), created_at=now)
        boundary = StoredBoundary(
            id=new_id(),
            parent_id=session.info.id,
            child_id=child.id,
            trigger=options.trigger,
            created_at=now,
            tail=tuple(message.id for message in draft.plan.parts.tail),
            summary_source=summary.origin,
            summary_model=summary.model,
            template=summary.template,
            template_hash=summary.template_hash,
            tokens_before=draft.state.budget.used,
            tokens_after=draft.tokens_after,
            cost=summary.usage.cost,
            seconds=round(max(waited, summary.seconds), 3),
            truncated_chars=summary.truncated_chars,
            problem=draft.problem,
            facts=draft.facts,
            lineage=draft.lineage,
            prepared=prepared,
            moment=options.moment,
            waited_ms=round(waited * 1_000),
            threshold=options.threshold,
        )
        answer, facts = None, {seed_message.id: NOTHING}
        if options.pending_result is not None:
            answer = result_message(
                msgspec.structs.replace(options.pending_result, text=f"continued in {child.id}")
            )
            facts[answer.id] = session.facts_of(answer)
        await self._scope.services.store.boundaries.add(
            boundary,
            child,
            seed_message,
            overrides=draft.overrides,
            result=answer,
            ledger=to_json(draft.ledger).decode(),
            facts=facts,
        )
        self._gauge.reset()
        if summary.model and not summary.prepared:
            self._preparations.last_seconds = waited
        self._preparations.discard("used" if summary.prepared else "discarded", renew=True)
        if answer is not None and answer.result is not None:
            options.on_stored(answer.result)
        made = boundary_event(boundary, draft.seed)
        self._emit(made)
        history, branches = (seed_message, *tail), session.branches
        opened = LoadedSession(child, history, draft.overrides, inherited=len(history), branches=branches)
        session.continue_in(msgspec.structs.replace(opened, before=session.usage))
        return made


def _signed(draft: BoundaryDraft, summary: str) -> SignedSummary | None:
    """The vendor's form of the summary, unless the user or a redaction has changed it."""
    signed, tail = draft.summary.signed, draft.plan.parts.tail
    if signed is None or str(signed.block.get("content")).strip() != summary:
        return None
    return msgspec.structs.replace(signed, after=tail[-1].id if tail else "")
