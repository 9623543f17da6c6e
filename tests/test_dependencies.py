"""What a plain install brings: ranges in the metadata, unneeded extras, and the list in the docs."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [Requirement(text) for text in PROJECT["dependencies"]]
PAGE = (ROOT / "docs" / "installation.md").read_text()
BAD_VERSIONS = {"litellm": ("1.82.7", "1.82.8", "1.92.2", "1.108.4"), "mcp": ("2.2.0", "3.0.0")}
"""Malicious, or known not to work."""
REPORTED_SYSTEM = {
    "python_version": "3.13",
    "python_full_version": "3.13.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
}


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_requirements_are_ranges_with_a_lower_bound(requirement: Requirement) -> None:
    operators = [part.operator for part in requirement.specifier]
    assert ">=" in operators
    assert "==" not in operators, "pins belong in the locks"
    for version in BAD_VERSIONS.get(requirement.name, ()):
        assert not requirement.specifier.contains(version), version


def test_docs_describe_each_direct_dependency_once() -> None:
    table = PAGE.partition("## Dependencies")[2].partition("## ")[0]
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", table, re.M)
    assert [name for name, _ in rows if name not in ("package", "---")] == [item.name for item in DIRECT]


def test_docs_count_the_packages_of_a_plain_install() -> None:
    found: set[str] = set()
    waiting = [(requirement, "") for requirement in DIRECT]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({**REPORTED_SYSTEM, "extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        known = {name, *(f"{name}[{each}]" for each in requirement.extras)}
        if known <= found:
            continue
        found |= known
        inner = [Requirement(text) for text in metadata.requires(name) or ()]
        waiting += [(each, part) for each in inner for part in ("", *requirement.extras)]
    count = len([name for name in found if "[" not in name])
    assert f"A plain install brings {count} packages" in PAGE


EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"psycopg", "psycopg_binary", "psycopg_pool", "procrastinate"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv[0] = "crushpy"
from crushpy.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("run", "look around", "--quiet"), 0, ""),
        (("sessions", "list"), 0, ""),
        (("doctor",), 0, "nothing broken"),
        (("worker",), 2, "crushpy[fleet]"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_the_package_works_without_an_extra(
    workspace: Path, args: tuple[str, ...], status: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXTRAS, *args],
        capture_output=True,
        text=True,
        cwd=workspace,
        timeout=100,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
