"""Runs what waits for a disk beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def to_the_end(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`function` in a thread. When cancelled it waits for it: nothing is written after we said we stopped."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # Looked at, so that nobody is warned of it.
        raise
