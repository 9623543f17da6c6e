"""bin/release: what it refuses, and the notes that it takes from the changelog. The workflows."""

import re
import subprocess
from pathlib import Path

import pytest

import crushpy

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github/workflows"


def release(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", str(ROOT / "bin/release"), *args], capture_output=True, text=True, cwd=ROOT, timeout=60
    )


def test_release_notes_are_the_section_of_the_version() -> None:
    done = release(crushpy.__version__, "--notes")
    assert done.returncode == 0, done.stderr
    assert "**Context**" in done.stdout
    assert "\n## " not in done.stdout
    assert release("9.9.9", "--notes").returncode == 1


def test_release_needs_a_version_and_a_dry_run() -> None:
    for args in ((), ("1.0", "--dry-run"), ("1.0.0",), ("1.0.0", "--dry-run", "--force")):
        done = release(*args)
        assert done.returncode == 2
        assert "bin/release VERSION --dry-run" in done.stderr


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.name)
def test_actions_are_pinned_by_the_hash_of_a_commit(workflow: Path) -> None:
    used = re.findall(r"uses: (?!\./)(.*)", workflow.read_text())
    loose = [action for action in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)]
    assert used and not loose
