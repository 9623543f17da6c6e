"""The recipes of CONTRIBUTING work: each is applied to a copy of the repository, where its commands
and the fast tests of its area pass.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
ADDING = PAGE.partition("\n## Adding things\n")[2].partition("\n## ")[0]
RECIPES = {title: text for title, _, text in (part.partition("\n") for part in ADDING.split("\n### ")[1:])}
BLOCK = re.compile(r"(?:`([\w./-]+)`[^`\n]*:\n\n)?```(\w+)\n(.*?)```", re.DOTALL)
"""A block of code; before one that is a new file stands its path."""

AREAS: dict[str, tuple[str, ...]] = {
    "A tool": ("tests/tools", "tests/engine/test_tasks.py"),
    "An app command": ("tests/tui",),
    "A column": ("tests/storage",),
    "A query": ("tests/storage",),
    "A CLI command": ("tests/cli",),
    "A flag of `crushpy` and `crushpy run`": ("tests/cli",),
    "A provider": ("tests/llm",),
    "A setting": ("tests/settings",),
    "An import format": ("tests/cli/test_import.py", "tests/cli/test_import_formats.py"),
}
"""Tests that a recipe may turn red although it does not name them."""
COMMAND_TIMEOUT_S = 1_500

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def test_recipes_are_found() -> None:
    assert RECIPES.keys() == AREAS.keys()
    assert all("```sh\n" in text for text in RECIPES.values()), "a recipe names no test"


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_works_as_written(title: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_repository(copy)
    changed: list[str] = []
    for path, kind, body in BLOCK.findall(number_revisions(RECIPES[title], copy)):
        if kind == "sh":
            run(["bash", "-euc", body], copy)
            check_style(changed, copy)
        elif kind == "diff":
            changed.append(apply_diff(body, copy))
        else:
            assert path, f"no line such as `crushpy/x.py`: stands before this block:\n{body}"
            assert not (copy / path).exists(), f"{path} exists already"
            (copy / path).write_text(body)
            changed.append(path)
    run(["pytest", "-m", "not slow and not nightly and not live", *AREAS[title]], copy)


def copy_repository(copy: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(sys.prefix)


def number_revisions(text: str, copy: Path) -> str:
    """The text with N and M as the recipe of a column defines them."""
    versions = (copy / "crushpy/storage/migrations/versions").glob("v*.py")
    newest = max(int(re.findall(r"\d+", path.name)[0]) for path in versions)
    return (
        text.replace("/vN_", f"/v{newest + 1}_")
        .replace('"N"', f'"{newest + 1}"')
        .replace('"M"', f'"{newest}"')
    )


def apply_diff(diff: str, copy: Path) -> str:
    """Applies a diff of one file, whose parts begin with `@@`; what it does not add must be there once."""
    first, _, parts = diff.partition("\n")
    path = first.removeprefix("--- ")
    text = (copy / path).read_text()
    for part in parts.split("@@\n"):
        lines = part.splitlines()
        before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, f"{path} does not contain once:\n{before}"
        text = text.replace(before, after)
    (copy / path).write_text(text)
    return path


def check_style(changed: list[str], copy: Path) -> None:
    sources = [path for path in changed if path.endswith(".py")]
    checked = [path for path in sources if path.startswith("crushpy/")]
    run(["ruff", "check", *sources], copy)
    run(["ruff", "format", "--check", *sources], copy)
    run(["basedpyright", "--warnings", "--pythonpath", sys.executable, *checked], copy)


def run(command: list[str], copy: Path) -> None:
    """Runs a command that must succeed, with the code of the copy."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": programs,
        "PYTHONPATH": str(copy),
        "CRUSHPY_HOME": str(copy.parent / "home"),
    }
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
