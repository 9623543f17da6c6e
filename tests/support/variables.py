"""Environment variables for a part of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """These variables are set meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield
