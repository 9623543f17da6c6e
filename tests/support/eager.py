"""Eager tasks, as Textual turns them on where Python has them: a new task runs before its maker goes on."""

import asyncio

import pytest


@pytest.fixture
async def eager_tasks() -> None:
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("this Python has no eager tasks (3.12 and newer do)")
    asyncio.get_running_loop().set_task_factory(factory)
