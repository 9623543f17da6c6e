"""Which part of a long list a test marked `sampled` goes through: all of it in bin/nightly."""

import os
from collections.abc import Iterable
from typing import TypeVar

ALL = bool(os.environ.get("CRUSHPY_TEST_ALL"))
"""Read here: the tests themselves see no variables of ours."""
T = TypeVar("T")


def some(cases: Iterable[T], every: int, start: int = 0) -> list[T]:
    """Every n-th case."""
    return list(cases) if ALL else list(cases)[start::every]


def thinned(step: int, times: int = 12) -> int:
    """The distance between two steps of a long operation."""
    return step if ALL else times * step
