"""The tree and the reading path in `docs/architecture.md` are those of the package."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed() -> set[str]:
    """The paths that the tree names, below `crushpy/`."""
    tree = PAGE.split("```")[1].split("crushpy/\n", 1)[1]
    found: set[str] = set()
    folders: list[str] = []
    for line in tree.splitlines():
        match = re.match(r"( +)(\S+)", line)
        if match is None:
            continue
        depth = len(match[1]) // 2 - 1
        folders[depth:] = [match[2]]
        found.add("".join(folders).rstrip("/"))
    return found


def test_the_tree_names_every_room_and_nothing_that_is_not_there() -> None:
    package = ROOT / "crushpy"
    rooms = {
        str(folder.relative_to(package))
        for folder in package.rglob("*")
        if folder.is_dir() and list(folder.glob("*.py"))
    }
    missing = rooms - listed()
    assert not missing, f"add these rooms to the tree in docs/architecture.md: {sorted(missing)}"
    gone = {path for path in listed() if not (package / path).exists()}
    assert not gone, f"take these out of the tree in docs/architecture.md: {sorted(gone)}"


def test_the_reading_path_can_be_read_in_one_sitting() -> None:
    path = re.findall(r"^\| `([\w/]+\.py)` \|", PAGE, re.MULTILINE)
    assert len(path) <= 8
    lines = sum(len((ROOT / "crushpy" / file).read_text().splitlines()) for file in path)
    assert lines <= 1_600, f"the reading path has {lines} lines: split a file, or choose another"
