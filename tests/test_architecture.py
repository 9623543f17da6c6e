"""The package table and the reading path in `docs/architecture.md` match the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAX_PATH_FILES, MAX_PATH_LINES, MAX_PAGE_LINES = 8, 1_600, 130


def _rows(heading: str) -> list[str]:
    """The code-quoted first cells of the table below a heading."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([\w/.]+)` \|", section, re.MULTILINE)


def test_the_table_lists_every_package_and_nothing_else() -> None:
    package = ROOT / "crushpy"
    folders = {folder.parent.name for folder in package.glob("*/__init__.py")}
    files = {file.stem for file in package.glob("*.py") if not file.stem.startswith("__")}
    assert set(_rows("Packages")) == folders | files


def test_the_reading_path_can_be_read_in_one_sitting() -> None:
    path = _rows("Reading path")
    assert 0 < len(path) <= MAX_PATH_FILES
    lines = sum(len((ROOT / "crushpy" / file).read_text().splitlines()) for file in path)
    assert lines <= MAX_PATH_LINES, f"the reading path has {lines} lines: split a file, or choose another"


def test_the_page_stays_short() -> None:
    assert len(PAGE.splitlines()) <= MAX_PAGE_LINES


def test_the_package_has_few_loose_modules() -> None:
    assert len(list((ROOT / "crushpy").glob("*.py"))) <= 10
