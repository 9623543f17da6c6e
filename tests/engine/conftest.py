"""Fixtures for tests of the engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from talk import Talks


@pytest.fixture
async def talks(llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Talks]:
    """`talk = await talks()` opens a conversation with the scripted model."""
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "0.001")
    opened = Talks(workspace)
    yield opened
    await opened.close()
