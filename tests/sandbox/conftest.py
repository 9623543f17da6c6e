"""Each test finds the sandbox anew."""

import pytest

from crushpy.sandbox.finding import working_sandbox


@pytest.fixture(autouse=True)
def newly_found_sandbox() -> None:
    """A thread of an earlier test may have found the one that its variables named."""
    working_sandbox.cache_clear()
