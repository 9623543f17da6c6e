"""The aims of the compaction benchmark (`python -m benchmarks.compaction`), held on a small version of it."""

import pytest

from benchmarks.compaction import measure, scenario, summarisers
from benchmarks.compaction.__main__ import QUICK, SHORT

WINDOW = 200_000


@pytest.mark.parametrize("name", ["useless", "failing"])
async def test_facts_survive_eight_generations_whatever_the_summariser_is_worth(name: str) -> None:
    figures = await measure.run(scenario.make(QUICK), summarisers.ALL[name], window=WINDOW, quick=True)
    assert len(figures.survival) == 8
    assert figures.input_recall.value == 1 and figures.input_recall.total > 300
    for generation in figures.survival:
        for kind in summarisers.EVIDENCE:
            assert generation[kind].value >= 0.95, (kind, generation[kind])
    last = figures.survival[-1]
    assert {kind: last[kind].total for kind in summarisers.EVIDENCE} == {
        "path": 120,
        "command": 22,
        "todo": 20,
        "request": 30,
    }
    assert all(after < WINDOW // 10 for _, after in figures.tokens)
    assert figures.summary_calls == 8, "one for each boundary"


async def test_what_a_perfect_summariser_is_sent_survives_whole() -> None:
    figures = await measure.run(scenario.make(SHORT), summarisers.perfect, window=WINDOW, quick=True)
    assert figures.input_recall.value == 1
    for generation in figures.survival:
        assert all(share.value == 1 for share in generation.values()), generation


async def test_what_does_not_fit_is_found_by_one_recall() -> None:
    sizes = scenario.Sizes(generations=2, paths=600, failing=160, todos=30, requests=12, looks=0, batch=25)
    beyond = await measure.beyond_the_bound(scenario.make(sizes), window=WINDOW)
    assert beyond.left_out > 100
    assert beyond.found == beyond.left_out


@pytest.mark.parametrize("placement", ["message", "append"])
async def test_in_llm_no_byte_of_the_cached_prefix_changes(placement: str) -> None:
    prefixes = await measure.prefixes(scenario.make(SHORT), placement, window=WINDOW)
    assert prefixes.compared > 30
    assert prefixes.bytes_changed == 0


async def test_a_provider_that_always_overflows_costs_two_summaries_at_most() -> None:
    overflowed = await measure.always_overflow(scenario.make(SHORT), window=WINDOW)
    assert 1 <= overflowed.summary_calls <= 2
    assert "does not fit" in overflowed.said


def test_the_same_sizes_give_the_same_conversation() -> None:
    assert scenario.make(SHORT) == scenario.make(SHORT)
    assert scenario.make(SHORT) != scenario.make(SHORT, seed=2)
