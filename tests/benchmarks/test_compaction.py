"""The aims of the compaction benchmark (`python -m benchmarks.compaction`), held on a small version of it."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.selection import ALL

from benchmarks.compaction import against, drive, measure, scenario, summarisers
from benchmarks.compaction.__main__ import QUICK, SHORT

pytestmark = pytest.mark.slow

WINDOW = 200_000


FEW = QUICK if ALL else replace(QUICK, generations=3, paths=45, failing=24, todos=9, requests=12)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "sizes"), [("useless", QUICK), ("failing", FEW)])
async def test_facts_survive_every_generation_whatever_the_summariser_is_worth(
    name: str, sizes: scenario.Sizes
) -> None:
    figures = await measure.run(scenario.make(sizes), summarisers.ALL[name], window=WINDOW, quick=True)
    assert len(figures.survival) == sizes.generations
    assert figures.input_recall.value == 1 and figures.input_recall.total > 2 * sizes.paths
    for generation in figures.survival:
        for kind in summarisers.EVIDENCE:
            assert generation[kind].value >= 0.95, (kind, generation[kind])
    last = figures.survival[-1]
    assert {kind: last[kind].total for kind in summarisers.EVIDENCE} == {
        "path": sizes.paths,
        "command": sizes.failing,
        "todo": sizes.todos,
        "request": sizes.requests,
    }
    assert all(after < WINDOW // 10 for _, after in figures.tokens)
    assert figures.summary_calls == sizes.generations, "one for each boundary"


async def test_facts_survive_when_the_summariser_is_perfect() -> None:
    figures = await measure.run(scenario.make(SHORT), summarisers.perfect, window=WINDOW, quick=True)
    assert figures.input_recall.value == 1
    for generation in figures.survival:
        assert all(share.value == 1 for share in generation.values()), generation


@pytest.mark.nightly
async def test_recall_finds_what_did_not_fit() -> None:
    sizes = scenario.Sizes(generations=2, paths=600, failing=160, todos=30, requests=12, looks=0, batch=25)
    beyond = await measure.beyond_the_bound(scenario.make(sizes), window=WINDOW)
    assert beyond.left_out > 100
    assert beyond.found == beyond.left_out


@pytest.mark.parametrize("placement", ["message", "append"])
async def test_cached_prefix_stays_identical_in_llm(placement: str) -> None:
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


def test_a_package_that_cannot_be_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module | strands' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(against.NotDriven, match="no module / strands"):
        against.driven(python, "strands", {"base": "http://127.0.0.1:9", "window": 1, "generations": []})


def test_the_conversation_for_other_packages_has_the_facts_of_each_generation_in_it() -> None:
    generations = asyncio.run(against.conversation(SHORT, window=WINDOW))
    for messages, facts in zip(generations, against.planted(SHORT), strict=True):
        told = "\n".join(drive.texts({"messages": messages}).splitlines())
        missing = [fact for fact in facts if fact.kind != "todo" and fact.text not in told]
        assert facts
        assert missing == []


def test_an_unknown_package_is_refused_with_those_that_are_known() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compaction", "--against", "strand"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 2
    assert "there is no strand; known are strands, crewai, praisonai" in done.stderr
