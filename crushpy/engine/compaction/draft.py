"""One boundary before it is stored: how it was asked for, its plan, what it carries, its review."""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from crushpy.context.carried import CarriedPins, carry_loaded, loaded_text
from crushpy.context.coverage import carried_words, fact_words
from crushpy.context.evidence import build_evidence
from crushpy.context.facts import said_in
from crushpy.context.ledger import Ledger
from crushpy.context.overrides import BY_USER, apply_overrides, has_outdated_summary, users_edits
from crushpy.context.plan import (
    FRAME_TOKENS,
    Plan,
    TokenBudget,
    least_tail,
    make_plan,
    plan_after,
    without_tail,
)
from crushpy.context.render import message_text, seed_text
from crushpy.context.standing_rules import CarriedRules
from crushpy.context.tags import quoted, safe
from crushpy.core.boundary import CompactionTrigger, FactCount, carried_share, of_this_boundary
from crushpy.core.events import BoundaryCommitted, Emit, Notice, ReviewDone, ReviewNeeded
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, LoadedText, Message, MessageOverride, Note, Seed, ToolResult, counted
from crushpy.core.templates import Template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.pins_and_rules import PinService, carried_rules, load_ledger, take_snapshot
from crushpy.engine.compaction.summarizer import Summary, SummaryJob
from crushpy.engine.compaction.window import ContextView, Thresholds, WindowState
from crushpy.engine.hooks import HookEvent
from crushpy.engine.nested_rules import NestedRules
from crushpy.llm.provider_factory import usual_placement
from crushpy.security.redact import Redactor, redact
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import Compaction
from crushpy.storage.records import SessionInfo
from crushpy.tools.errors import ToolError
from crushpy.util.lazy_pattern import lazy_pattern
from crushpy.util.pending_answers import PendingAnswers

_QUOTE = lazy_pattern(r'(?P<head><(?P<tag>\w+) id="(?P<message_id>\w+)"[^>]*>).*?</(?P=tag)>', re.DOTALL)
"""In the quotes of a seed: what is quoted cannot close our tags."""
CARRIED_TOKENS = {"lean": (1_000, 2_000), "normal": (5_000, 3_000), "full": (20_000, 4_000)}
"""Of the tail and of the evidence, by `compaction.carry`."""
MAX_HOOK_LINES, MAX_HOOK_CHARS = 20, 400
"""Of the evidence that hooks add."""


OnStored = Callable[[ToolResult], None]
"""Called with the result of a call that ends or opens a session, once it is stored with the boundary."""


class BoundaryOptions(Data, frozen=True):
    """How one boundary was asked for."""

    trigger: CompactionTrigger
    focus: str = ""
    """The user's instructions for this summary only."""
    summary: str = ""
    """Written by the agent or the user: no summariser is asked, and no tail is carried."""
    pending_result: ToolResult | None = None
    """The result of the `new_session` call that asked for it, without text yet; stored with the boundary."""
    on_stored: OnStored = lambda _: None
    evidence_only: bool = False
    minimal_tail: bool = False
    may_postpone: bool = True
    review: bool = False
    moment: str = ""
    threshold: float = 0.0
    """The threshold that the window reached."""
    template: Template | None = None
    """Replaces the summary template in force."""


class BoundaryDraft(msgspec.Struct):
    """What the steps of a boundary work on. Each step fills in its part: plan, evidence, summary, review."""

    options: BoundaryOptions
    state: WindowState
    limits: TokenBudget
    pins: CarriedPins
    rules: CarriedRules
    ledger: Ledger
    """All facts of the lineage."""
    loaded: tuple[LoadedText, ...]
    """Skills, rules files and evidence of hooks."""
    plan: Plan
    from_preparation: bool = False
    """The plan is that of a preparation, whose summary is ready or under way."""
    evidence: str = ""
    summary: Summary = Summary()
    seed: Seed = Seed("", "")
    """The child's first message."""
    overrides: tuple[MessageOverride, ...] = ()
    """How the child shows some messages of its tail."""
    tokens_after: int = 0
    """Size of the child's first request."""
    facts: dict[str, FactCount] = msgspec.field(default_factory=dict[str, FactCount])
    lineage: tuple[int, int] = (0, 0)
    """Of all facts since the root: how many there were, and how many are carried."""

    @property
    def problem(self) -> str:
        """What the user should know about what is carried."""
        return "; ".join(filter(None, (self.summary.problem, self.rules.warning)))

    def event(self, made: BoundaryCommitted | None = None) -> HookEvent:
        """For hooks: the boundary as it is planned, or as it was `made`."""
        trigger, parts = "manual" if self.options.trigger == "manual" else "auto", self.plan.parts
        middle, tail = ([message.id for message in part] for part in (parts.middle, parts.tail))
        if made is None:
            sizes = {"tokens_used": self.state.budget.used, "context_window": self.state.budget.window}
            plan = {"summarized": middle, "kept": tail, "evidence_tokens": self.plan.evidence_tokens, **sizes}
            fields = {"trigger": trigger, "custom_instructions": self.options.focus, "plan": plan}
            return HookEvent("PreCompact", trigger, fields)
        lost = {kind: count.total - count.carried for kind, count in of_this_boundary(made.facts).items()}
        fields = msgspec.structs.asdict(made) | {"boundary_id": made.id, "compact_summary": made.summary}
        fields |= {"trigger": trigger, "left_out": {"facts": lost, "messages": middle}}
        return HookEvent("PostCompact", trigger, fields)

    def rehearsal(self) -> "Rehearsal":
        return Rehearsal(
            text=seed_text(self.seed),
            summary=self.seed.summary,
            tokens_before=self.state.budget.used,
            tokens_after=self.tokens_after,
            messages=len(self.plan.parts.middle),
            tail=len(self.plan.parts.tail),
            cost=self.summary.usage.cost,
            coverage=self.facts,
            share=carried_share(self.facts),
            prose_share=carried_share(self.facts, by_prose=True),
            problem=self.problem,
        )


class Rehearsal(Data, frozen=True, omit_defaults=False):
    """What a boundary would carry over."""

    text: str
    summary: str
    tokens_before: int
    tokens_after: int
    messages: int
    """How many would be left behind."""
    tail: int
    """How many would be carried verbatim."""
    cost: float
    coverage: dict[str, FactCount]
    share: float | None
    prose_share: float | None
    problem: str = ""

    @property
    def lines(self) -> list[str]:
        """What it would do, in words."""
        prose = f" ({self.prose_share:.0%} by the summary alone)" if self.prose_share is not None else ""
        carried = carried_words(of_this_boundary(self.coverage))
        coverage = f"{carried}{prose}: {fact_words(self.coverage)}" if carried else ""
        figures = f"{self.tokens_before:,} → {self.tokens_after:,} tokens; "
        figures += f"{counted(self.messages, 'message')} summarized, {self.tail} kept; ${self.cost:.4f}"
        return [line for line in (figures, coverage, one_line(self.problem)) if line]


class Declined(Exception):
    """The user rejected the summary, or a hook the boundary. Its text is for the agent."""


def limits_of(
    compaction: Compaction, planned: float, window: int, fixed_tokens: int, pinned: int
) -> TokenBudget:
    """How much a child may start with, by the settings."""
    tail, evidence = CARRIED_TOKENS[compaction.carry]
    if compaction.keep_recent_tokens is not None:
        tail = compaction.keep_recent_tokens
    if compaction.evidence_tokens is not None:
        evidence = compaction.evidence_tokens
    return TokenBudget(window, planned, tail, compaction.summary_tokens, evidence, fixed_tokens, pinned)


def leaves_no_room(limits: TokenBudget, ratio: float | None) -> bool:
    """Whether the fixed part leaves a child no room below its threshold, however little it carries.

    A `ratio` of reported to estimated tokens above two points to a wrong usage report rather than to another
    tokenizer; the circuit breaker handles that.
    """
    fixed = int(limits.fixed_tokens / max(1.0, (ratio or 1.0) / 2))
    return msgspec.structs.replace(limits, fixed_tokens=fixed).carried <= FRAME_TOKENS


class BoundaryPlanner:
    """Plans boundaries of one session. Changes nothing."""

    def __init__(
        self, scope: AgentScope, view: ContextView, thresholds: Thresholds, pins: PinService | None
    ) -> None:
        """Without `pins` nothing is pinned: tasks do not get the pins of their conversation."""
        self._scope, self._session, self._gauge = scope, scope.session, scope.gauge
        self._view, self._thresholds = view, thresholds
        self._pins = pins
        self._load_skill = scope.services.workspace.skills.load_skill
        self.pins, self.rules, self.ledger = CarriedPins(), CarriedRules(), Ledger()
        self.loaded: tuple[LoadedText, ...] = ()
        """As they were last read."""
        self.earlier: tuple[Message, ...] = ()
        """If the summary is outdated: the messages that it was written from, as far as they are left. The
        next one is written from them again."""

    async def read_carried(self, *, store_missing: bool = False) -> None:
        """Reads the pins, the facts of the lineage, its rules, skills and rules files as they are now; plans
        made after this leave room for them. `store_missing`: facts that are not stored yet."""
        if self._pins is not None:
            self.pins = await self._pins.carried()
        self.ledger = await load_ledger(
            self._session, self._scope.services.store, store_missing=store_missing
        )
        self.rules = await carried_rules(self._scope, self.ledger)
        self.loaded = await asyncio.to_thread(self._read_loaded) if self.ledger.loaded else ()
        session, self.earlier = self._session, ()
        if session.seed is not None and has_outdated_summary(session.history, session.overrides):
            store, here = self._scope.services.store, {message.id for message in session.history}
            lineage = await store.messages.load_lineage(session.info.id)
            edits = users_edits(await store.boundaries.load_overrides(session.info.id))
            before = (message for message in lineage if message.id not in here and not message.seed)
            self.earlier = tuple(apply_overrides(before, edits))

    def _read_loaded(self) -> tuple[LoadedText, ...]:
        rules = NestedRules(self._scope.services)
        sources: list[LoadedText] = []
        for key in self.ledger.loaded:
            kind, _, name = key.partition(":")
            text = ""
            with suppress(ToolError):  # one that is gone is carried by name
                text = rules.read(name) if kind == "rules" else self._load_skill(name)[1]
            sources.append(LoadedText(key, redact(text)))
        return carry_loaded(sources, self._gauge.window(self._session.info.model), self._gauge.count)

    def token_budget(self, state: WindowState) -> TokenBudget:
        pinned = self._gauge.count(self.pins.text + loaded_text(self.loaded)) + self.rules.tokens
        compaction, planned = self._scope.settings.compaction, self._thresholds.planned
        return limits_of(compaction, planned, state.budget.window, state.fixed_tokens, pinned)

    async def evidence(self, state: WindowState, plan: Plan | None = None) -> str:
        """The evidence by the facts last read, as large as `plan` allows."""
        return await self._evidence_of(self.ledger, self._session.info, self.token_budget(state), plan)

    async def _evidence_of(
        self, ledger: Ledger, info: SessionInfo, limits: TokenBudget, plan: Plan | None = None
    ) -> str:
        size, count = self._gauge.size, self._gauge.count
        gone = [name for name, kind in ledger.edits.items() if kind != "shorten"]
        lineage = await self._scope.services.store.messages.load_lineage(info.id) if gone else ()
        dropped = "\n".join(said_in(message) for message in lineage if message.id in gone)
        around = await take_snapshot(info, self._scope.services.workspace, dropped)

        def build() -> str:
            tail = [] if plan is None else least_tail(plan, limits, size=size, count=count)
            return build_evidence(
                ledger,
                around,
                limit=limits.evidence if plan is None else plan.evidence_tokens,
                request_limit=limits.longest_quote,
                count=count,
                redact=Redactor().text,
                lean=self._scope.settings.compaction.carry == "lean",
                beside="\n".join(map(message_text, tail)),
            )

        return await asyncio.to_thread(build)  # a long lineage takes time, and must not block the screen

    async def renewed_seed(
        self, info: SessionInfo, seed: Seed, edited: Collection[str], said: Sequence[Message]
    ) -> Seed:
        """The seed that a session of this lineage would have now: its evidence, rules and quotes without what
        the user edited since, and with what was restored. Its summary is prose, and stays."""
        scope = self._scope
        ledger = await load_ledger(self._session, scope.services.store, store_missing=False, before=info)
        limits, texts = self.token_budget(self._view.now()), {message.id: message.text for message in said}
        evidence = await self._evidence_of(ledger, info, limits)

        def quote_again(quote: re.Match[str]) -> str:
            name, was_edited = quote["message_id"], BY_USER in quote[0]
            text = quoted(
                texts.get(name, "").strip(), limits.longest_quote, self._gauge.count, f"recall {name}"
            )
            return f"{quote['head']}\n{safe(redact(text))}\n</{quote['tag']}>" if was_edited else quote[0]

        found = _QUOTE.finditer(seed.quotes)
        quotes = "\n".join(quote_again(quote) for quote in found if quote["message_id"] not in edited)
        loaded = tuple(item for item in seed.loaded if item.kind == "hook" or item.key in ledger.loaded)
        rules = (await carried_rules(scope, ledger)).text
        pins = (await self._pins.carried()).text if self._pins else seed.pins
        made = {"evidence": evidence, "rules": rules, "pins": pins, "quotes": quotes, "loaded": loaded}
        return msgspec.structs.replace(seed, **made)

    async def ask_hooks(self, draft: BoundaryDraft) -> None:
        """Adds the evidence of hooks. They may block a boundary that can wait: raises Declined."""
        reply = await self._scope.services.approvals.hooks.fire(draft.event())
        budget, late = draft.state.budget, self._scope.settings.compaction.fallback_threshold
        if reply.decision == "deny" and draft.options.trigger != "overflow" and not budget.reaches(late):
            self._scope.emit(Notice(f"A hook blocked the compaction: {reply.reason}"))
            raise Declined(f"A hook blocked the new session: {reply.reason}")
        lines = [redact(line[:MAX_HOOK_CHARS]) for line in reply.evidence if line.strip()][:MAX_HOOK_LINES]
        added = [LoadedText(f"hook:{number}", line) for number, line in enumerate(lines, 1)]
        before = self._session.seed.loaded if self._session.seed else ()
        draft.loaded = (*draft.loaded, *(added or (message for message in before if message.kind == "hook")))

    async def tell_hooks(self, draft: BoundaryDraft, made: BoundaryCommitted) -> None:
        hooks = self._scope.services.approvals.hooks
        await hooks.fire(draft.event(made))
        started = await hooks.fire(HookEvent("SessionStart", "compact", {"source": "compact"}))
        if started.context:
            await self._session.add_note(Note(started.context, origin="hook"))

    def plan(self, options: BoundaryOptions, limits: TokenBudget) -> Plan:
        history = self._session.history
        plan = make_plan(
            apply_overrides(history, self._session.overrides),
            limits,
            has_seed=self._session.seed is not None,
            size=self._gauge.size,
            count=self._gauge.count,
            minimal_tail=options.minimal_tail,
        )
        if options.summary:
            plan = without_tail(plan, limits, summary_size=self._gauge.count(options.summary))
        return self._with_stored_middle(plan)

    def plan_after(
        self, summarised: int, limits: TokenBudget, expected: int, summary: str | None = None
    ) -> Plan | None:
        """The plan if the first messages are summarised already, or will be in `expected` tokens.

        None if the messages since then are too large to be carried verbatim.
        """
        plan = plan_after(
            apply_overrides(self._session.history, self._session.overrides),
            limits,
            summarised_until=summarised,
            has_seed=self._session.seed is not None,
            summary_size=expected if summary is None else self._gauge.count(summary),
            size=self._gauge.size,
            count=self._gauge.count,
        )
        return None if plan is None else self._with_stored_middle(plan)

    def _with_stored_middle(self, plan: Plan) -> Plan:
        """A summariser reads the stored messages, not those shortened to fit the window."""
        fitted = {key for key, made in self._session.overrides.items() if made.kind == "fit"}
        stored = {message.id: message for message in self._session.history if message.id in fitted}
        middle = tuple(stored.get(message.id, message) for message in plan.parts.middle)
        return msgspec.structs.replace(plan, parts=msgspec.structs.replace(plan.parts, middle=middle))

    def summary_job(self, options: BoundaryOptions, plan: Plan, focus: str = "") -> SummaryJob:
        """The input of the summariser for the middle of `plan`."""
        info, seed = self._session.info, self._session.seed
        compaction = self._scope.settings.compaction
        parts = plan.parts
        by_vendor = (
            compaction.summarizer == "vendor"
            and usual_placement(info.model, self._scope.settings) == "keep"
            and not self.earlier
        )
        return SummaryJob(
            middle=(*self.earlier, *plan.parts.middle),
            previous=seed.notes if seed and not self.earlier else "",
            target_tokens=plan.summary_tokens,
            names={
                "focus": focus,
                "todos": [{"text": todo.text, "status": todo.status} for todo in info.todos],
                "cwd": info.cwd,
                "method": info.compaction,
            },
            main_model=info.model,
            seconds=compaction.summary_seconds,
            auxiliary=compaction.model,
            template=options.template,
            sent=self._view.prefix_request(len(parts.head) + len(parts.middle)) if by_vendor else None,
        )


class Verdict(Data, frozen=True):
    """The user's answer to a summary under review."""

    kind: Literal["accept", "regenerate", "decline"]
    text: str = ""
    """accept: the summary as edited (empty: unchanged); regenerate: a note; decline: words for the agent."""


class SummaryReview:
    """Shows a summary to the user before it takes effect, and waits for the answer."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._pending = PendingAnswers[Verdict]()
        self.answer = self._pending.settle
        """Answers a pending review; False if there is none of that id."""
        self.seconds = 0.0
        """Total time spent waiting for the user."""

    async def ask(self, draft: BoundaryDraft) -> Verdict:
        review_id, seed = new_id(), draft.seed
        before, after = draft.state.budget.used, draft.tokens_after
        self._emit(ReviewNeeded(review_id, draft.options.trigger, seed.summary, seed.evidence, before, after))
        verdict: Verdict | None = None
        asked = time.monotonic()
        try:
            verdict = await self._pending.wait(review_id)
            return verdict
        finally:
            self.seconds += time.monotonic() - asked
            self._emit(ReviewDone(review_id, verdict.kind if verdict else "interrupted"))
