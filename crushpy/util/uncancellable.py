"""Sees a piece of work to its end before a cancellation is let in."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from crushpy.util.spawn import spawn

P = ParamSpec("P")
T = TypeVar("T")


async def uncancellable(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """What `work` returns. A cancellation that comes meanwhile is raised when it is done.

    For what must not be done by halves: storing something, holding it, and saying so.
    """
    task = work if isinstance(work, asyncio.Future) else spawn(work)
    cancelled = False
    while not task.done():
        try:
            await _end_of(task)
        except asyncio.CancelledError:
            cancelled = True
    result = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return result


def _end_of(task: asyncio.Future[Any]) -> asyncio.Future[None]:
    """Done when the task is; to cancel it leaves the task alone."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: None if end.done() else end.set_result(None))
    return end


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function` beside the event loop, uncancellable: nothing is written after we said we stopped.

    Where it fails after a cancellation, it is the cancellation that is raised: nobody waits for the error.
    """
    running = asyncio.to_thread(function, *args, **kwargs)
    (result,) = await uncancellable(asyncio.gather(running, return_exceptions=True))
    if isinstance(result, BaseException):
        raise result
    return result
