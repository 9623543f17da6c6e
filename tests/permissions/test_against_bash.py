"""What bash really runs is what was read and allowed, for lines generated from its grammar."""

import shutil
from pathlib import Path

import pytest
from support.selection import ALL

from benchmarks.shell_fuzz import Bash, find_escape, fuzz, minimise

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
    pytest.mark.sampled,
]


@pytest.mark.parametrize("seed", range(2))
def test_bash_runs_nothing_and_writes_nothing_that_was_not_read(seed: int, tmp_path: Path) -> None:
    lines = 1_500 if ALL else 600
    result = fuzz(lines, seed, tmp_path)
    assert result.escapes == []
    assert result.executed > lines // 8


def test_an_escape_is_found_and_made_short(tmp_path: Path) -> None:
    """The harness sees programs that run, so that finding none means something."""
    bash = Bash(tmp_path)
    assert bash.run("x='a[$(bad y)]'; : ${-:x}") == ([["bad", "y"]], [])
    assert bash.run("ok 1 | other > f") is not None
    assert find_escape("ok 1 && ok 2 > f", bash, tmp_path) == ""
    line = "ok 1; x='a[$(bad y)]'; : ${-:x}; ok"
    assert len(minimise(line, lambda text: ["bad", "y"] in _commands(bash, text))) < len(line) - 10


def _commands(bash: Bash, line: str) -> list[list[str]]:
    done = bash.run(line)
    return done[0] if done else []
