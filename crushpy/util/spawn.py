"""Starts a background task, with the same semantics on every Python version."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return a task for `work`, which starts running once the caller awaits something.

    Textual installs an eager task factory on Python 3.12 and later: `asyncio.create_task` would then run
    `work`, perhaps to its end, before it returns. This bypasses the factory.
    """
    return asyncio.Task(work, loop=asyncio.get_running_loop())


def spawn_among(tasks: set[asyncio.Task[T]], work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The same; the task is one of `tasks` until it ends."""
    task = spawn(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def run_parallel(items: Sequence[T], run: Callable[[T], Awaitable[None]], limit: int) -> None:
    """Runs `run` for all items, at most `limit` at a time. If one raises, the others are cancelled."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await run(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(items))):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
