"""Walks a stored conversation under other settings, without a model and without writing.

The decisions are the engine's own: thresholds, gauge, breaker, plan and evidence. While a replay agrees with
what happened, recorded summaries and usage count as they are; after that, usage is scaled by the sizes of the
requests.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Literal

import msgspec

from crushpy.context.budget import median, plausible, ratio_of
from crushpy.context.carried import pin_limit
from crushpy.context.coverage import measure
from crushpy.context.evidence import WorkspaceSnapshot, build_evidence
from crushpy.context.facts import FactReader, MessageFacts
from crushpy.context.inspect import RequestMade
from crushpy.context.ledger import Ledger
from crushpy.context.overrides import apply_overrides, by_message
from crushpy.context.plan import TokenBudget, least_tail, make_plan, overrides_to_fit, without_tail
from crushpy.context.render import message_text, seed_text
from crushpy.context.standing_rules import RulePhrases, carry_rules
from crushpy.core.boundary import (
    KEEPS_CONTEXT,
    RETURN,
    FactCount,
    StoredBoundary,
    Trigger,
    of_this_boundary,
)
from crushpy.core.messages import Data, Message, MessageOverride, Seed, Todo, TodoList, Usage
from crushpy.core.templates import Templates
from crushpy.engine.compaction.draft import leaves_no_room, limits_of
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.pins_and_rules import rule_phrases
from crushpy.engine.compaction.window import CircuitBreaker, Thresholds
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession, LoadedSession, child_of
from crushpy.llm.protocol import Request
from crushpy.security.redact import Redactor, redact
from crushpy.settings.schema import PositiveInt, Settings, Threshold
from crushpy.storage.records import BreakerState, SessionInfo
from crushpy.storage.store import Store


class ReplayChanges(Data, frozen=True, forbid_unknown_fields=True):
    """Settings that differ from those of the recording; None: as recorded or, if unknown, as configured."""

    method: Literal["auto", "llm"] | None = None
    threshold: Threshold | None = None
    window: PositiveInt | None = None
    prepare: bool | None = None
    carry: Literal["lean", "normal", "full"] | None = None
    template: str = ""
    """The text of another summary template."""

    @property
    def label(self) -> str:
        values = msgspec.structs.asdict(self) | {"template": "changed" if self.template else None}
        words = (f"{name} {value}" for name, value in values.items() if value is not None)
        return ", ".join(words) or "as recorded"


class RecordedSession(Data, frozen=True):
    info: SessionInfo
    boundary: StoredBoundary | None
    """The one that opened it."""
    start: tuple[Message, ...]
    """Its seed and its tail, as requests show them."""
    own: tuple[tuple[Message, MessageFacts], ...]
    aside: Usage
    """Of calls that left no message: the summary of the boundary that ended it, a title."""
    side: Usage
    """Of the branches that returned to it, and of its tasks."""


class Recording(Data, frozen=True):
    """A stored conversation from its root to one session."""

    sessions: tuple[RecordedSession, ...]
    edits: dict[str, list[MessageOverride]]
    """By the message they were made after."""
    undone: dict[str, float]
    """When a boundary of a session was undone, by the session's id."""
    imported: frozenset[str] = frozenset()
    """The messages of another agent."""
    reported: bool = False
    """That agent recorded usage."""


class ReplayedBoundary(Data, frozen=True, omit_defaults=False):
    before_message: str
    """The first message after it."""
    number: int
    """How many messages of the conversation precede it."""
    trigger: Trigger
    moment: str
    tokens_before: int
    tokens_after: int
    facts: int
    carried: int
    recorded: bool
    """It happened like this, with the stored summary; if not, only the evidence counts as carried."""


class Replay(Data, frozen=True, omit_defaults=False):
    label: str
    window: int
    peak: int
    boundaries: tuple[ReplayedBoundary, ...]
    requests: tuple[RequestMade, ...]
    estimated: int
    """Requests whose usage was not recorded, or that differ from the recorded ones: theirs is scaled."""
    usage: Usage
    """Of all model calls, those for summaries included. Its cost is at list prices; 0 without prices."""
    unknown: tuple[str, ...]
    """What a replay cannot know."""
    names: tuple[int, int] = (0, 0)
    """How many were needed after the boundaries, and how many of them had been carried; 0 if not counted."""

    @property
    def facts(self) -> tuple[int, int]:
        """How many there were at all boundaries, and how many were carried."""
        return sum(boundary.facts for boundary in self.boundaries), sum(
            boundary.carried for boundary in self.boundaries
        )


async def load_recording(store: Store, session_id: str, phrases: Callable[[], RulePhrases]) -> Recording:
    reach = await store.boundaries.load_reach(session_id)
    lineage = {session.id: session for session in await store.sessions.load_lineage(session_id)}
    root = lineage[session_id].root_id
    boundaries = await store.boundaries.load_conversation(root)
    opening = {boundary.child_id: boundary for boundary in boundaries if boundary.trigger != "return"}
    edits: dict[str, list[MessageOverride]] = {}
    for override in await store.boundaries.load_overrides(session_id):
        edits.setdefault(override.made_after, []).append(override)
    side, above = defaultdict[str, Usage](Usage), {name: name for name in lineage}
    left = {earlier.id: later.created_at for earlier, later in pairwise(lineage.values())}
    for session in await store.sessions.load_conversation(root):  # parents precede their children
        further = () if session.parent_id in lineage else ("continuation",)
        if (
            session.parent_id in above
            and session.id not in above
            and session.kind in ("branch", "task", *further)
        ):
            place = above[session.parent_id]
            if session.created_at < left.get(place, math.inf):
                above[session.id] = place
                side[place] += session.usage
    foreign = await store.imports.find_last_message(root) if lineage[session_id].imported else ""
    known: dict[str, Message] = {}
    imported: dict[str, Usage | None] = {}
    sessions: list[RecordedSession] = []
    for name, last in reach:
        own: list[Message] = []
        for message in await store.messages.load_readable(name, last):
            own.append(message)
            imported |= {message.id: message.usage} if foreign else {}
            foreign = "" if message.id == foreign else foreign
        known |= {message.id: message for message in own}
        info, boundary = lineage[name], opening.get(name)
        seed = [own.pop(0)] if own and own[0].seed is not None else []
        tail = [known[message_id] for message_id in boundary.tail if message_id in known] if boundary else []
        start = tuple(apply_overrides((*seed, *tail), by_message(edits.get("", ()))))
        facts = FactReader(info.cwd, (), phrases, redact).extract_all(own)
        replies = sum((message.usage for message in own if message.usage), Usage())
        figures = zip(*map(msgspec.structs.astuple, (info.usage, replies)), strict=True)
        aside = Usage(*(max(0, figure - other) for figure, other in figures))
        if info.imported:
            aside = msgspec.structs.replace(aside, cost=0.0)
        pairs = tuple(zip(map(_at_list_prices, own) if info.imported else own, facts, strict=True))
        sessions.append(RecordedSession(info, boundary, start, pairs, aside, side[name]))
    undone = {
        boundary.parent_id: boundary.undone_at for boundary in boundaries if boundary.undone_at is not None
    }
    return Recording(tuple(sessions), edits, undone, frozenset(imported), any(imported.values()))


def _at_list_prices(message: Message) -> Message:
    """Without the cost that another agent computed."""
    usage = msgspec.structs.replace(message.usage, cost=0.0) if message.usage else None
    return msgspec.structs.replace(message, usage=usage)


async def replay_session(
    store: Store,
    session_id: str,
    settings: Settings,
    models: Models,
    changes: Iterable[ReplayChanges] = (ReplayChanges(),),
) -> list[Replay]:
    """A replay of a conversation up to this session for each of `changes`."""
    recording = await load_recording(store, session_id, rule_phrases(Templates()))

    def walk() -> list[Replay]:
        return [asyncio.run(Replayer(store, recording, settings, models, change).run()) for change in changes]

    return await asyncio.to_thread(walk)


class Replayer:
    def __init__(
        self, store: Store, recording: Recording, settings: Settings, models: Models, changes: ReplayChanges
    ) -> None:
        """Nothing is written to the store."""
        self._recording, self._models, self._changes = recording, models, changes
        self._settings = _changed(settings, changes, recording)
        info = recording.sessions[0].info
        method = changes.method or info.compaction
        first = msgspec.structs.replace(info, compaction=method, breaker=BreakerState())
        self._session = LiveSession(store, LoadedSession(first, stored=False), lambda _: None, lambda _: 0)
        counter = Gauge(models.window, lambda _model, _counted: (), models.count_image, first.model)
        counter.load()
        self._fixed = _fixed_tokens(recording, counter, models)
        self._gauge = Gauge(self._window, models.ratios, models.count_image, first.model, self._fixed)
        self._thresholds = Thresholds(lambda: self._settings, self._session)
        self._breaker = CircuitBreaker(self._session)
        self._redact = Redactor().text
        self._history = recording.sessions[0].start
        self._size = counter.size
        self._held_then = sum(map(self._size, self._history))
        """Our count of the messages in the recorded request."""
        self._agrees = True
        """The next request is the recorded one."""
        self._ledger, self._facts = Ledger(), list[MessageFacts]()
        self._todos = self._todos_before = tuple[Todo, ...]()
        self._is_prepared = False
        seeds = [session.start[0].seed for session in recording.sessions if session.start]
        sizes = [counter.count(seed.summary) for seed in seeds if seed is not None and seed.summary]
        self._summary_tokens = round(median(sizes)) if sizes else self._limits(0).summary_target
        """Of a summary that does not exist."""
        self._boundaries: list[ReplayedBoundary] = []
        self.starts: list[str] = []
        """What the child of each boundary began with."""
        self._requests: list[RequestMade] = []
        self._usage = Usage()
        self._opens, self._asked_then, self._hit_share = False, 0, 0.0
        self._estimated = 0
        self._unknown: dict[str, None] = {}
        self._next, self._number, self._aside = "", 0, Usage()

    def _window(self, model: str) -> int | None:
        return self._changes.window or self._models.window(model)

    async def run(self) -> Replay:
        for place, session in enumerate(self._recording.sessions):
            self._next = session.own[0][0].id if session.own else ""
            if place:
                await self._enter(session)
            undone = self._recording.undone.get(session.info.id)
            self._aside = self._models.with_cost(session.info.model, session.aside)
            self._usage += session.side
            if session.side.total:
                self._unknown["What branches and tasks would have used: what they used is added."] = None
            for message, facts in session.own:
                self._next = message.id
                self._session.held = undone is not None and undone <= message.created_at
                if message.role == "assistant":
                    await self._call(message)
                self._history = (*self._history, message)
                self._held_then += self._size(message)
                if edits := self._recording.edits.get(message.id):
                    self._history = tuple(apply_overrides(self._history, by_message(edits)))
                    self._gauge.reset()
                elif message.role == "assistant":
                    budget = self._gauge.reading(self._request, self._history)  # also calibrates it
                    threshold = self._thresholds.in_force
                    if threshold is not None:
                        await self._breaker.reported(budget.used, threshold * budget.window)
                    if message.calls:
                        self._is_prepared |= bool(self._thresholds.preparation(budget, 0, ""))
                self._facts.append(facts)
                self._number += 1
                display = message.result.display if message.result else None
                self._todos = display.todos if isinstance(display, TodoList) else self._todos
        return self._result()

    async def _enter(self, session: RecordedSession) -> None:
        """The recording continues in this session, after a boundary or without one."""
        boundary, method = session.boundary, self._changes.method or session.info.compaction
        if session.info.model != self._session.info.model:
            self._gauge.reset()
        same = {"model": session.info.model, "compaction": method}
        self._session.info = msgspec.structs.replace(self._session.info, **same)
        if boundary is None or boundary.trigger in (*KEEPS_CONTEXT, RETURN):
            return
        made = len(self._boundaries)
        by_model = boundary.trigger == "agent" and method == "llm"
        as_recorded = boundary.trigger == "imported" and self._changes == ReplayChanges()
        if (
            boundary.trigger == "manual"
            or as_recorded
            or by_model
            or (boundary.trigger == "overflow" and self._agrees)
        ):
            self._make_boundary(boundary.trigger, session)
        elif boundary.trigger in ("auto", "fallback"):
            await self._check(session)
        self._agrees = self._agrees and len(self._boundaries) > made
        self._held_then = sum(map(self._size, session.start))

    async def _check(self, recorded: RecordedSession | None = None) -> None:
        """What a model call begins with. `recorded`: the session that really was opened here."""
        before, self._todos_before = self._todos_before, self._todos
        if self._thresholds.in_force is None or not self._history:
            return
        budget = self._gauge.reading(self._request, self._history)
        moment = self._thresholds.moment(budget, self._history, before, self._todos)
        if await self._breaker.blocks(budget.used):
            return
        is_prepared = self._is_prepared
        if self._agrees and self._changes == ReplayChanges():  # then it is known
            made = recorded.boundary if recorded is not None else None
            is_prepared = made is not None and bool(made.moment)
        match self._thresholds.next_step(
            budget,
            moment,
            cannot_help=lambda: leaves_no_room(self._limits(0), self._gauge.calibration.ratio),
            is_ready=lambda: is_prepared,
        ):
            case "boundary":
                self._make_boundary(self._thresholds.trigger, recorded)
            case "moment":
                self._make_boundary("auto", recorded, moment)
            case "wait":
                # An agent that was not in `llm` would open a session at the share that it is told.
                told = self._settings.compaction.threshold
                known = any(session.info.compaction == "llm" for session in self._recording.sessions)
                asks = told != "off" and budget.share >= told and self._history[-1].role == "tool"
                if asks and not known:
                    unknown = "When the model would have opened a new session: at the share that it is told."
                    self._unknown[unknown] = None
                    self._make_boundary("agent")
            case "prepare":
                self._is_prepared |= bool(self._thresholds.preparation(budget, 0, moment))
            case _:
                pass

    @property
    def _request(self) -> Request:
        return Request(self._session.info.model, "", ())

    def _limits(self, pinned: int) -> TokenBudget:
        window, fixed = self._gauge.window(self._session.info.model), self._gauge.fixed_tokens(self._request)
        return limits_of(self._settings.compaction, self._thresholds.planned, window, fixed, pinned)

    def _make_boundary(
        self, trigger: Trigger, recorded: RecordedSession | None = None, moment: str = ""
    ) -> None:
        info = self._session.info
        used = self._gauge.reading(self._request, self._history).used
        ledger = self._ledger.merged(self._facts)
        happened = recorded.boundary if recorded is not None and recorded.start and self._agrees else None
        if recorded is not None and happened is not None:
            facts, after = happened.facts, happened.tokens_after
            self._usage += self._aside
            self._history = recorded.start
            self.starts.append(start_text(recorded.start))
        else:
            facts = self._carry(trigger, ledger)
            if facts is None:
                return
            self._agrees, after = False, self._gauge.request_size(self._request, self._history)
        self._ledger, self._facts, self._is_prepared, self._opens = ledger, [], False, True
        self._gauge.reset()
        self._session.info = child_of(info, 0.0, trigger)
        counts = of_this_boundary(facts).values()
        total, carried = sum(count.total for count in counts), sum(count.carried for count in counts)
        made = (self._next, self._number, trigger, moment, used, after, total, carried, happened is not None)
        self._boundaries.append(ReplayedBoundary(*made))

    def _carry(self, trigger: Trigger, ledger: Ledger) -> dict[str, FactCount] | None:
        """Starts the child with evidence, rules, tail, and room for a summary. The facts that are carried;
        None if there is nothing to leave behind."""
        compaction, count, size = self._settings.compaction, self._gauge.count, self._gauge.size
        limit = pin_limit(compaction.rule_tokens, self._gauge.window(self._session.info.model))
        rules = carry_rules(ledger.rules or (), limit, count, redact=self._redact)
        limits, expected = self._limits(rules.tokens), self._summary_tokens
        before = self._history[0].seed if self._history else None
        plan = make_plan(self._history, limits, has_seed=before is not None, size=size, count=count)
        plan = without_tail(plan, limits, summary_size=expected) if trigger == "agent" else plan
        parts, cwd = plan.parts, self._session.info.cwd
        if not parts.middle:
            return None
        evidence = build_evidence(
            ledger,
            WorkspaceSnapshot(cwd=cwd, todos=self._todos, grants=self._session.info.grants),
            limit=plan.evidence_tokens,
            request_limit=limits.longest_quote,
            count=count,
            redact=self._redact,
            lean=compaction.carry == "lean",
            beside=start_text(least_tail(plan, limits, size=size, count=count)),
        )
        seed = Seed("", evidence, plan.quotes, rules=rules.text)
        text = seed_text(seed)
        fitted = overrides_to_fit(plan, limits, text_tokens=count(text) + expected, size=size)
        tail = apply_overrides(parts.tail, by_message(fitted))
        if trigger != "agent":  # whose reply, which holds the summary, costs about as much as another
            read = sum(map(size, parts.middle)) + count(self._changes.template)
            self._usage += self._models.with_cost(
                compaction.model or self._session.info.model, Usage(read, expected)
            )
        first = Message(f"seed {len(self._boundaries)}", "user", (seed,))
        first = msgspec.structs.replace(first, tokens=self._size(first) + expected)
        self._history = (first, *tail)
        carried = start_text(self._history)
        self.starts.append(carried)
        left, notes = {message.id for message in parts.middle}, before.notes if before else ""
        return measure(parts.middle, "", carried, cwd=cwd, notes=notes, rules=ledger.rules_of(left))

    async def _call(self, message: Message) -> None:
        is_imported = message.id in self._recording.imported
        if not is_imported or self._changes != ReplayChanges():  # else it is known when its agent compacted
            await self._check()
        if is_imported and self._recording.reported and message.usage is None:
            self._unknown["What replies without recorded usage used: nothing is counted for them."] = None
            return
        usage = self._replayed_usage(message)
        self._usage += usage
        asked = usage.total - usage.output_tokens
        self._requests.append(RequestMade(asked, usage.cache_read_tokens, self._opens))
        self._opens = False
        self._gauge.add_report(usage if message.usage else None, len(self._history) + 1)

    def _replayed_usage(self, message: Message) -> Usage:
        """The recorded usage if the request is the recorded one; else scaled by the sizes of the two."""
        model, usage = message.model or self._session.info.model, message.usage
        if usage is None or not usage.total:
            self._unknown[
                "What replies without recorded usage used: that is estimated, the request before cached."
            ] = None
            self._estimated += 1
            asked = self._gauge.reading(self._request, self._history).used
            read = min(asked, self._requests[-1].tokens) if self._requests and not self._opens else 0
            return self._models.with_cost(model, Usage(asked - read, self._size(message), read))
        asked, before = usage.total - usage.output_tokens, self._asked_then
        self._asked_then = asked
        self._hit_share = min(1.0, usage.cache_read_tokens / before) if before else self._hit_share
        if self._agrees:
            return self._models.with_cost(model, usage)
        self._estimated += 1
        held = sum(map(self._size, self._history))
        scaled = round(asked * (self._fixed + held) / max(1, self._fixed + self._held_then))
        follows = self._requests and not self._opens
        cached = self._requests[-1].tokens if follows else self._gauge.fixed_tokens(self._request)
        read = min(scaled, round(self._hit_share * cached))
        written = (scaled - read) * usage.cache_write_tokens // max(1, asked - usage.cache_read_tokens)
        lasting = written * usage.hour_write_tokens // max(1, usage.cache_write_tokens)
        figures = scaled - read - written, usage.output_tokens, read, written, 0.0, lasting
        return self._models.with_cost(model, Usage(*figures))

    def _result(self) -> Replay:
        model, usage = self._session.info.model, self._usage + self._aside
        made = sum(not boundary.recorded for boundary in self._boundaries)
        unknown = ["What the model would have done next: its recorded replies and calls are replayed."]
        if made:
            unknown.append(
                f"How it would have summarised: {made} of {len(self._boundaries)} boundaries carry evidence "
                f"alone, and {self._summary_tokens:,} tokens for a summary. Git, jobs and pins are left out."
            )
        if not self._models.info(model).input_cost:
            unknown.append(f"What it would have cost: no prices of {model} are known.")
        if self._window(model) is None:
            unknown.append(f"The window of {model}: {self._gauge.window(model):,} tokens are assumed.")
        return Replay(
            self._changes.label,
            self._gauge.window(model),
            max((request.tokens for request in self._requests), default=0),
            tuple(self._boundaries),
            tuple(self._requests),
            self._estimated,
            msgspec.structs.replace(usage, cost=round(usage.cost, 6)),
            (*unknown, *self._unknown),
        )


def start_text(messages: Iterable[Message]) -> str:
    """All that a child begins with, as text."""
    return "\n".join(
        seed_text(message.seed) if message.seed is not None else message_text(message) for message in messages
    )


def _changed(settings: Settings, changes: ReplayChanges, recording: Recording) -> Settings:
    """The settings of a replay: as changed, else as recorded, else as configured."""
    made = [session.boundary for session in reversed(recording.sessions) if session.boundary is not None]
    thresholds = {boundary.trigger: boundary.threshold for boundary in made if boundary.threshold}
    threshold = changes.threshold or thresholds.get("auto")
    given = {
        "threshold": threshold,
        "prepare": changes.prepare,
        "carry": changes.carry,
        "fallback_threshold": thresholds.get("fallback"),
    }
    models = settings.models
    if threshold:  # takes precedence over a model's own
        models = {name: msgspec.structs.replace(model, threshold=None) for name, model in models.items()}
    known = {name: value for name, value in given.items() if value is not None}
    compaction = msgspec.structs.replace(settings.compaction, **known)
    return msgspec.structs.replace(settings, compaction=compaction, models=models)


def _fixed_tokens(recording: Recording, counter: Gauge, models: Models) -> int:
    """Our count of system prompt and tools, which are not stored: what the reports of the first session hold
    beside its messages."""
    first = recording.sessions[0]
    reports: list[tuple[int, int]] = []
    held = 0
    for message, _ in first.own:
        if message.usage is not None and message.usage.total:
            reports.append((message.usage.total - message.usage.output_tokens, held))
        held += counter.size(message)
    prompt = counter.count(first.info.system)
    if not reports:
        return prompt
    (asked, before), (asked_last, before_last) = reports[0], reports[-1]
    ratio = ratio_of(models.ratios(first.info.model, True)) or 1.0
    if before_last > 2 * before:
        grown = (asked_last - asked) / (before_last - before)
        ratio = grown if plausible(grown) else ratio
    return max(prompt, round(asked / ratio) - before)
