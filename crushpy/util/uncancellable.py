"""Runs work to completion before a cancellation takes effect."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from crushpy.util.spawn import spawn

P = ParamSpec("P")
T = TypeVar("T")


async def uncancellable(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Return the result of `work`. A cancellation in the meantime is raised once it is done.

    For work that must not stop halfway: storing a record, keeping it in memory, and emitting its event.
    """
    task = work if isinstance(work, asyncio.Future) else spawn(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])  # cancelling this does not cancel the task
        except asyncio.CancelledError:
            cancelled = True
    result = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return result


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread, uncancellable: nothing is written after we reported that we stopped.

    If it fails after a cancellation, the cancellation is raised.
    """
    running = asyncio.to_thread(function, *args, **kwargs)
    (result,) = await uncancellable(asyncio.gather(running, return_exceptions=True))
    if isinstance(result, BaseException):
        raise result
    return result
