"""What was begun is seen to its end, however often it is cancelled meanwhile."""

import asyncio
import threading

import pytest

from crushpy.util.uncancellable import in_thread, uncancellable


class Held:
    """Work in a thread that goes on only when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._error = error
        self.begun = asyncio.Event()
        self.go_on = threading.Event()
        self.ended = False

    def work(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        self.go_on.wait()
        self.ended = True
        if self._error:
            raise self._error
        return "done"


async def cancel_twice(task: asyncio.Task[str]) -> None:
    for _ in range(2):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()


async def test_uncancellable_returns_a_threads_result() -> None:
    assert await in_thread(str.upper, "a") == "A"
    with pytest.raises(ValueError, match="literal"):
        await in_thread(int, "a")


@pytest.mark.parametrize("error", [None, OSError("disk full")])
async def test_two_cancellations_do_not_leave_the_wait_for_a_thread(error: Exception | None) -> None:
    held = Held(error)
    task = asyncio.create_task(in_thread(held.work))
    await held.begun.wait()
    await cancel_twice(task)
    held.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held.ended


async def test_two_cancellations_do_not_leave_the_wait_for_a_coroutine() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        ended.set()
        return "done"

    task = asyncio.create_task(uncancellable(work()))
    await begun.wait()
    await cancel_twice(task)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
