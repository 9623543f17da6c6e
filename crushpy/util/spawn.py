"""Starts a piece of work beside the one that asks for it, in the same way on every Python."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for `work`, whose first step comes once the caller waits for something.

    Textual installs an eager task factory where Python has one (3.12): `asyncio.create_task` would then run
    `work`, perhaps to its end, before the caller holds the task. This goes by no factory.
    """
    return asyncio.Task(work, loop=asyncio.get_running_loop())
