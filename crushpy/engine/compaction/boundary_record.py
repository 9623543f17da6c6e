"""What is said and stored of a boundary: how it is to be made, what it would carry, and its record."""

from collections.abc import Callable

import msgspec

from crushpy.context.coverage import Coverage
from crushpy.context.plan import Plan
from crushpy.core.events import Boundary
from crushpy.core.ids import new_id
from crushpy.core.messages import Cut, Data, Seed, ToolResult, Usage
from crushpy.core.templates import Template
from crushpy.engine.compaction.circuit_breaker import after_boundary
from crushpy.engine.compaction.summarizer import Summary
from crushpy.engine.compaction.thresholds import Trigger
from crushpy.storage.records import BoundaryInfo, SessionInfo


class BoundaryOptions(Data, frozen=True):
    """What is special about one boundary."""

    trigger: Trigger
    focus: str = ""
    """The user's words for this once."""
    summary: str = ""
    """Written already, by the agent or the user; no summariser is asked and no tail is carried."""
    answers: ToolResult | None = None
    """The result of the `new_session` call that asked for it; stored with the boundary."""
    on_stored: Callable[[ToolResult], None] = lambda _: None
    """Hears of that result once it is stored."""
    evidence_only: bool = False
    minimal_tail: bool = False
    may_postpone: bool = True
    review: bool = False
    moment: str = ""
    """The natural moment it is made at."""
    template: Template | None = None
    """Instead of the summary template in force."""


class Rehearsal(Data, frozen=True, omit_defaults=False):
    """What a boundary would carry over."""

    text: str
    summary: str
    tokens_before: int
    tokens_after: int
    messages: int
    """How many would be left behind."""
    tail: int
    """How many would be carried as they are."""
    cost: float
    coverage: dict[str, tuple[int, int, int]]
    share: float | None
    prose_share: float | None
    problem: str = ""


class ChildStart(Data, frozen=True):
    """The child's first request."""

    cuts: tuple[Cut, ...]
    """How it shows some messages of the tail."""
    tokens: int
    coverage: Coverage
    lineage: tuple[int, int]
    """Of all facts since the root: how many there were, and how many are carried."""


class Declined(Exception):
    """The user looked at the summary and said no. `words` are for the agent."""

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self.words = words


def child_of(parent: SessionInfo, now: float, trigger: str = "") -> SessionInfo:
    """The session that continues `parent`, with everything that is carried over."""
    return msgspec.structs.replace(
        parent,
        id=new_id(),
        parent_id=parent.id,
        kind="continuation",
        generation=parent.generation + 1,
        created_at=now,
        updated_at=now,
        ended_at=None,
        end_reason="",
        message_count=0,
        usage=Usage(),
        breaker=after_boundary(parent.breaker, trigger),
    )


def boundary_record(
    options: BoundaryOptions,
    parent_id: str,
    child_id: str,
    now: float,
    plan: Plan,
    summary: Summary,
    coverage: Coverage,
) -> BoundaryInfo:
    source = (
        {"agent": "agent", "manual": "user"}.get(options.trigger, "model") if options.summary else "model"
    )
    return BoundaryInfo(
        id=new_id(),
        parent_id=parent_id,
        child_id=child_id,
        trigger=options.trigger,
        created_at=now,
        tail=tuple(message.id for message in plan.parts.tail),
        summary_source=(summary.source or source) if summary.text else "evidence",
        summary_model=summary.model,
        template_name=summary.template,
        template_hash=summary.template_hash,
        cost=summary.usage.cost,
        truncated_chars=summary.truncated_chars,
        problem=summary.problem,
        coverage=counts(coverage),
        moment=options.moment,
    )


def boundary_event(boundary: BoundaryInfo, coverage: Coverage, seed: Seed) -> Boundary:
    """The event that tells of a stored boundary."""
    return Boundary(
        trigger=boundary.trigger,
        parent_id=boundary.parent_id,
        child_id=boundary.child_id,
        tokens_before=boundary.tokens_before,
        tokens_after=boundary.tokens_after,
        coverage=coverage.share,
        id=boundary.id,
        prose_coverage=coverage.prose_share,
        cost=boundary.cost,
        seconds=boundary.seconds,
        summary_source=boundary.summary_source,
        summary_model=boundary.summary_model,
        template=boundary.template_name,
        problem=boundary.problem,
        summary=seed.summary,
        evidence=seed.evidence,
        pins=seed.pins,
        lineage=boundary.lineage,
        prepared=boundary.prepared,
        moment=boundary.moment,
        waited_ms=boundary.waited_ms,
        facts=counts(coverage),
    )


def counts(coverage: Coverage) -> dict[str, tuple[int, int, int]]:
    return {kind: (found.total, found.prose, found.carried) for kind, found in coverage.by_kind.items()}
