"""A live conversation for tests: the real engine, real storage, real tools, and a scripted model server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM

from crushpy.bootstrap.opening import open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.events import Event
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation
from support.event_order import assert_in_order

MODEL = "openai/test-model"


class Talk:
    """One conversation and everything it said."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.events: list[Event] = []
        self._changed = asyncio.Event()
        conversation.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def ask(self, text: str) -> str:
        return await asyncio.wait_for(self.conversation.ask(text), 60)

    def of(self, *kinds: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once `condition` holds; it is looked at after every event."""
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_event(self, kind: type[Any], count: int = 1) -> Any:
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    async def close(self) -> None:
        await self.conversation.close()
        assert_in_order(self.events)


class Talks:
    """Opens conversations in one folder and closes them all at the end."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._open: list[Talk] = []

    async def __call__(self, *, flags: dict[str, object] | None = None, **options: Any) -> Talk:
        around = ProjectEnvironment(self._cwd, {"model": MODEL, **(flags or {})})
        conversation = await open_conversation(around, StartOptions(cwd=str(self._cwd), **options))
        talk = Talk(conversation)
        self._open.append(talk)
        return talk

    async def close(self) -> None:
        for talk in self._open:
            await talk.close()


@pytest.fixture
async def talks(llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Talks]:
    """`talk = await talks()` opens a conversation with the scripted model."""
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "0.001")
    opened = Talks(workspace)
    yield opened
    await opened.close()
