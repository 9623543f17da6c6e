"""Runs calls of one reply side by side, a few at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from crushpy.core.messages import ToolCall
from crushpy.engine.approvals import Judgements
from crushpy.tools.base import ToolContext

MOST_AT_ONCE = 16
"""Calls of one reply on their way at the same time; the others wait for their turn. What these store is
committed together; with more of them keys would have to wait longer than the calls gain."""
TOLD_AT_A_TIME = 50
"""Calls of a reply that are told to the outside in one go."""
HEARING = 0.001
"""Seconds of a pause in which keys are heard: what one does takes more than one round of the event loop."""
MOMENT = 0.5
"""Seconds for which calls that begin one after the other count as beginning side by side."""


class CallBatch:
    """For calls that begin side by side: where each path leads is found once, and judged once."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._now = (context.resolving_once(), Judgements())
        self._since = time.monotonic()

    def now(self) -> tuple[ToolContext, Judgements]:
        """What the next call begins with, and keeps to its end."""
        if time.monotonic() - self._since > MOMENT:
            self._now = (self._context.resolving_once(), Judgements())
            self._since = time.monotonic()
        return self._now


async def answer_in_parallel(
    calls: Sequence[ToolCall], answer: Callable[[ToolCall], Awaitable[None]]
) -> None:
    """When one cannot be answered, none of the others runs on."""
    waiting = iter(calls)

    async def one_after_the_other() -> None:
        for call in waiting:
            await answer(call)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(calls), MOST_AT_ONCE)):
                group.create_task(one_after_the_other())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
