"""Runs calls of one reply side by side, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from crushpy.messages import ToolCall

MOST_ON_THEIR_WAY = 64
"""Calls of one reply that are decided and stored at the same time: what they store is committed together."""
MOST_AT_ONCE = 16
"""Of these, calls that run at the same time; the others wait for their turn."""


async def answer_side_by_side(
    calls: Sequence[ToolCall], answer: Callable[[ToolCall], Awaitable[None]]
) -> None:
    """When one cannot be answered, none of the others runs on."""
    waiting = iter(calls)

    async def one_after_the_other() -> None:
        for call in waiting:
            await answer(call)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(calls), MOST_ON_THEIR_WAY)):
                group.create_task(one_after_the_other())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
