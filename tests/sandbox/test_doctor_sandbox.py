"""`crushpy doctor --sandbox`: the ways out are tried, and each is said to have held."""

import json
from collections import Counter
from pathlib import Path

import pytest
from confined import needs_sandbox
from support.command import Cli

from crushpy.tools.shell.escape_checks import ESCAPES

pytestmark = pytest.mark.slow


def attempts() -> Counter[str]:
    counts = Counter({kind: len(each) for kind, each in ESCAPES.items()})
    counts.update({"git": 1, "processes": 2})
    return counts


@needs_sandbox
def test_every_way_out_is_tried_and_held_and_nothing_is_left(cli: Cli, home: Path) -> None:
    done = cli("doctor", "--sandbox", "--json")
    assert done.returncode == 0, done.stdout
    rows = json.loads(done.stdout)
    tried = [row["text"] for row in rows]
    assert all(text.startswith(("held: ", "hidden: ", "protected: ")) for text in tried)
    assert {text for text in tried if text.startswith("protected: ")} == {
        f"protected: {kind}: {count} of {count} attempts held" for kind, count in attempts().items()
    }
    assert {f"held: {name}" for each in ESCAPES.values() for name in each} < set(tried)
    assert list((home / "sandboxes").iterdir()) == []
    assert [path.name for path in Path.home().iterdir() if path.name.startswith(".crushpy")] == []


def test_doctor_tests_landlock_when_bubblewrap_is_missing(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--sandbox", env={"CRUSHPY_BUBBLEWRAP": str(tmp_path / "missing")})
    assert "bubblewrap does not work here" in done.stdout
    if "tried in landlock" in done.stdout:
        assert done.returncode == 0, done.stdout
        for name in (name for each in ESCAPES.values() for name in each):
            assert f" held: {name}" in done.stdout, (name, done.stdout)
    else:
        assert done.returncode == 1
