"""`crushpy doctor --sandbox`: the ways out are tried, and each is said to have held."""

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from confined import needs_sandbox
from support.command import Cli

from crushpy.sandbox.finding import find_sandbox
from crushpy.tools.shell.escape_checks import ESCAPES, EscapeTrial, Trial

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


@needs_sandbox
async def test_environment_at_the_top_of_the_home_folder_is_no_escape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))  # not in /tmp
    (home / ".venv").mkdir()
    (home / ".venv" / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(home / ".venv"))
    trial = EscapeTrial(find_sandbox(), tmp_path, home)
    tried: list[Trial] = []
    try:
        async for each in trial.run():
            tried += [each] if each.kind == "writes outside" else []
            if each.kind == "git":  # the next kind
                break
    finally:
        await trial.close()
        shutil.rmtree(home)
    assert tried and all(each.held for each in tried)


def test_doctor_tests_landlock_when_bubblewrap_is_missing(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--sandbox", env={"CRUSHPY_BUBBLEWRAP": str(tmp_path / "missing")})
    assert "bubblewrap does not work here" in done.stdout
    if "tried in landlock" in done.stdout:
        assert done.returncode == 0, done.stdout
        for name in (name for each in ESCAPES.values() for name in each):
            assert f" held: {name}" in done.stdout, (name, done.stdout)
    else:
        assert done.returncode == 1
