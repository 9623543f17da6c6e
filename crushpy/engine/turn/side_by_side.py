"""Runs calls of one reply side by side, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from crushpy.messages import ToolCall

MOST_AT_ONCE = 16
"""Calls of one reply on their way at the same time; the others wait for their turn. What these store is
committed together; with more of them keys would have to wait longer than the calls gain."""
TOLD_AT_A_TIME = 50
"""Calls of a reply that are told to the outside in one go."""


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
            for _ in range(min(len(calls), MOST_AT_ONCE)):
                group.create_task(one_after_the_other())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
