"""The figures: what reached the summariser, what survived, what it cost, what recall finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compaction.drive import Crossed, Record, played
from benchmarks.compaction.scenario import Fact, Scenario
from benchmarks.compaction.summarisers import EVIDENCE, Summarizer, overflowing, useless
from crushpy.context.coverage import flat, path_covered
from crushpy.engine.agents.agent import recall
from crushpy.engine.conversation import Conversation
from crushpy.storage.store import Store

KINDS = (*EVIDENCE, "other")


@dataclass(frozen=True)
class Share:
    found: int
    total: int

    @property
    def value(self) -> float:
        return self.found / self.total if self.total else 1.0

    def __str__(self) -> str:
        return f"{self.found}/{self.total}"

    @property
    def percent(self) -> str:
        return f"{self.value:.0%}" if self.value in (0, 1) else f"{self.value:.1%}"


@dataclass(frozen=True)
class Figures:
    """Of one run with one summariser."""

    input_recall: Share
    survival: list[dict[str, Share]]
    """For each generation, by kind of fact."""
    tokens: list[tuple[int, int]]
    """Before and after each boundary."""
    agent_calls: int
    summary_calls: int


async def run(scenario: Scenario, summariser: Summarizer, *, window: int, quick: bool) -> Figures:
    async with played(scenario, summariser, window=window, quick=quick) as (record, _):
        return Figures(
            input_recall(record),
            [survival(crossed, record.workspace) for crossed in record.boundaries],
            [(crossed.tokens_before, crossed.tokens_after) for crossed in record.boundaries],
            record.agent_calls,
            record.summary_calls,
        )


def input_recall(record: Record) -> Share:
    """Of the facts that are no longer in view after the last boundary, how many a summariser was sent."""
    last = record.boundaries[-1]
    gone = [fact for fact in last.planted if fact.text not in last.tail]
    read = "\n".join(record.summarised)
    return Share(sum(fact.text in read for fact in gone), len(gone))


def survival(crossed: Crossed, workspace: Path) -> dict[str, Share]:
    """Of all facts so far, how many stand word for word in the child's first request."""
    found: dict[str, Share] = {}
    for kind in KINDS:
        facts = [
            fact for fact in crossed.planted if (fact.kind if fact.kind in EVIDENCE else "other") == kind
        ]
        found[kind] = Share(sum(_stands_in(fact, crossed, workspace) for fact in facts), len(facts))
    return found


def _stands_in(fact: Fact, crossed: Crossed, workspace: Path) -> bool:
    if fact.kind == "path":
        return path_covered(f"{workspace}/{fact.text}", str(workspace), flat(crossed.first_request))
    return fact.text in crossed.first_request


# --- beyond the bound ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beyond:
    """Facts that did not fit into the child's first request, and how many of them one recall finds."""

    planted: int
    left_out: int
    found: int


async def beyond_the_bound(scenario: Scenario, *, window: int) -> Beyond:
    async with played(scenario, useless, window=window, quick=True) as (record, conversation):
        last = record.boundaries[-1]
        facts = [fact for fact in last.planted if fact.kind in EVIDENCE]
        missing = [fact for fact in facts if not _stands_in(fact, last, record.workspace)]
        found = await _recalled(record, conversation, missing)
        return Beyond(len(facts), len(missing), found)


async def _recalled(record: Record, conversation: Conversation, facts: Sequence[Fact]) -> int:
    store = Store(record.database)
    found = 0
    for fact in facts:
        query = f"{record.workspace}/{fact.text}" if fact.kind == "path" else fact.text
        answer = await recall(store, conversation.session, query, "")
        found += _flat(fact.text) in _flat(answer)
    await store.close()
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())


# --- llm and overflow ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prefixes:
    compared: int
    bytes_changed: int


async def prefixes(scenario: Scenario, placement: str, *, window: int) -> Prefixes:
    """Bytes of the cached prefix that changed from one request to the next, in `llm`."""
    settings: dict[str, object] = {"compaction.method": "llm", "compaction.status_placement": placement}
    async with played(scenario, useless, window=window, quick=True, settings=settings) as (record, _):
        return Prefixes(record.prefixes, record.prefix_bytes_changed)


@dataclass(frozen=True)
class Overflowed:
    agent_calls: int
    summary_calls: int
    said: str


async def always_overflow(scenario: Scenario, *, window: int) -> Overflowed:
    """From some moment on the provider says "overflow" to everything."""
    answer = overflowing("", ())
    async with played(
        scenario,
        overflowing,
        window=window,
        quick=True,
        settings={"compaction.threshold": "off"},
        refuse_at_end=answer,
    ) as (record, _):
        return Overflowed(record.agent_calls, record.summary_calls, record.failure)
