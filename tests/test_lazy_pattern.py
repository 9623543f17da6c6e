"""Patterns that are compiled on first use."""

import importlib
import re
from pathlib import Path

import pytest

import crushpy
from crushpy.util.lazy_pattern import LazyPattern, lazy_pattern

PACKAGE = Path(crushpy.__file__).parent
USERS = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if "import lazy_pattern" in path.read_text()
]


def test_a_lazy_pattern_finds_what_the_compiled_one_finds() -> None:
    pattern = lazy_pattern(r"(\d+)X", re.IGNORECASE)
    for _ in range(2):
        assert pattern.sub(r"<\1>", "1x 22X") == "<1> <22>"
        assert pattern.pattern == r"(\d+)X"


@pytest.mark.parametrize("module", USERS)
def test_the_lazy_patterns_of_a_module_compile(module: str) -> None:
    values: list[object] = []
    for value in vars(importlib.import_module(module)).values():
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    patterns = [value for value in values if isinstance(value, LazyPattern)]
    assert patterns
    for pattern in patterns:
        assert pattern.pattern  # pyright: ignore[reportUnknownMemberType]
