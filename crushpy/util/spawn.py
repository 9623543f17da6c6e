"""Starts a background task, with the same semantics on every Python version."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return a task for `work`, which starts running once the caller awaits something.

    Textual installs an eager task factory on Python 3.12 and later: `asyncio.create_task` would then run
    `work`, perhaps to its end, before it returns. This bypasses the factory.
    """
    return asyncio.Task(work, loop=asyncio.get_running_loop())
