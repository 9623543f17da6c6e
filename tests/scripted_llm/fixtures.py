"""Pytest fixtures of the scripted model server."""

from collections.abc import Iterator

import pytest

from scripted_llm.server import ScriptedLLM


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    """A scripted model server on loopback, fresh for this test."""
    with ScriptedLLM() as server:
        yield server
