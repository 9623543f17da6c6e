"""Something that is to happen exactly once, whoever asks for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from crushpy.util.spawn import spawn


class Once:
    """Awaits something exactly once, however often it is called; a failure is raised to every caller."""

    def __init__(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._action = action
        self._task: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        return self._task is not None and self._task.done() and self._task.exception() is None

    async def __call__(self) -> None:
        if self._task is None:
            self._task = spawn(self._action())
        await asyncio.shield(self._task)
