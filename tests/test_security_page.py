"""Each promise of `docs/security.md` names tests that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.slow
def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 50
    for file, name in named:
        assert (ROOT / file).is_file(), f"docs/security.md names {file}, which is not there"
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not name or name in tests, f"docs/security.md names {file}::{name}, which is not there"


def test_every_promise_names_one() -> None:
    done = PAGE.split("## What is done")[1].split("## What is not done")[0]
    rows = [line for line in done.splitlines() if line.startswith("| ") and "---" not in line]
    promises = [row for row in rows if not row.startswith("| promise |")]
    assert len(promises) > 25
    for row in promises:
        assert NAMED.search(row.split(" | ")[-1]), f"no test holds: {row}"
