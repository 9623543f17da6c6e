"""Sees a piece of work to its end before a cancellation is let in."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. A cancellation that comes meanwhile is raised when it is done.

    For what must not be done by halves: storing something, holding it, and saying so.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    result = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return result
