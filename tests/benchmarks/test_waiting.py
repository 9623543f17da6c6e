"""The benchmark of waiting (`python -m benchmarks.compaction.waiting`), on a small window and quick."""

import pytest

from benchmarks.compaction.waiting import measure_waits

pytestmark = pytest.mark.slow


async def test_prepared_summary_is_used_and_never_made_twice() -> None:
    waits = await measure_waits(
        prepare=True, boundaries=2, seconds=0.1, step=0.02, window=40_000, tokens_a_step=1_600
    )
    assert len(waits.milliseconds) == len(waits.boundaries) >= 2
    assert waits.states["preparing"] >= waits.states["used"] >= 2
    assert waits.states.get("discarded", 0) == 0
    assert all(boundary.trigger == "auto" for boundary in waits.boundaries)
