"""Figures in README.md and docs/ are those that the benchmark saved, and those of the code."""

import re
from pathlib import Path

from crushpy.core.defaults import DEFAULT_THRESHOLD

ROOT = Path(__file__).parents[1]
FIGURES = (ROOT / "benchmarks/compaction/figures.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def rows(summariser: str) -> dict[str, str]:
    """The share that is left after 8 compactions, by package."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in FIGURES.splitlines()]
    return {row[0]: row[5] for row in cells if row[1] == summariser}


def test_the_chart_of_the_readme_is_what_the_benchmark_saved() -> None:
    shown = dict(re.findall(r"^(\S+(?: \d\S*)?) +█\S* +([0-9.]+%)$", README, re.MULTILINE))
    assert shown == rows("lossy")
    found = re.search(r"with a useless summariser: (.*)$", README, re.MULTILINE)
    assert found is not None
    useless = rows("useless")
    for share, package in zip(found[1].split(", "), ("crushpy", "strands", "praison", "crewai"), strict=True):
        name = next(name for name in useless if name.startswith(package))
        assert share.endswith(f" {useless[name]}"), (share, useless[name])


def test_the_table_of_the_benchmarks_page_is_what_the_benchmark_saved() -> None:
    assert FIGURES in (ROOT / "docs/benchmarks.md").read_text("utf-8")


def test_the_readme_names_the_threshold_of_the_code() -> None:
    assert f"| {DEFAULT_THRESHOLD:.0%} of the window" in README
