"""A folder swapped for a link while a command writes in it: nothing lands outside."""

import pytest

from benchmarks.sandbox_races import race
from crushpy.sandbox.finding import Sandbox, working_landlock, working_sandbox

SANDBOXES = {"usual": working_sandbox, "landlock": working_landlock}


@pytest.mark.parametrize("name", SANDBOXES)
async def test_races_write_nothing_outside_the_workspace(name: str) -> None:
    sandbox: Sandbox = SANDBOXES[name]()
    if not sandbox.on:
        pytest.skip(sandbox.why_not)
    said, outside = await race(sandbox, 100)
    assert sum(map(int, said.split())) == 100
    assert outside == 0
