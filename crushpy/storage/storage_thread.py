"""The one thread on which everything is read and written, in order; and the database's work of its own.

The database is opened on that thread when the first job arrives, so that having a `Store` costs nothing.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crushpy.storage.backend import LONG_AGO
from crushpy.storage.group_commit import GroupCommit
from crushpy.storage.location import backend_at
from crushpy.storage.records import CannotWriteNow, StorageError
from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    from crushpy.storage.database import Database

T = TypeVar("T")
_A_PAUSE = 0.25
"""Seconds without a write after which the database does work of its own, and between two pieces of it."""
_BETWEEN = 0.01
_AFTER_A_FAULT = 10.0


class StorageThread:
    def __init__(self, database: Path, url: str = "") -> None:
        """`url` is the setting `database_url`; where it is empty the database is the file `database`."""
        self.backend = backend_at(database, url)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._tidying: asyncio.TimerHandle | None = None
        self._tidy_at = 0.0
        self._tidy_task: asyncio.Task[None] | None = None
        self._beat_task: asyncio.Task[None] | None = None
        self.calls = GroupCommit(
            self._executor.submit,
            lambda where, writes: self.backend.work(lambda database: database.calls.write(where, writes)),
        )

    def open_soon(self) -> None:
        """Opens the database in the background. A failure shows at the first job."""
        self._executor.submit(self.backend.open)

    def listen(self, hear: Callable[[str], None]) -> None:
        """From now on `hear` is told, in this loop, what a person should know while a job waits."""
        loop = asyncio.get_running_loop()

        def say(words: str) -> None:
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(hear, words)

        self.backend.say = say

    async def do(self, job: "Callable[[Database], T]", *, patient: bool = True) -> T:
        """What `job` gives, done on the thread; again where the connection was lost, if `patient`."""
        self.calls.send()
        asked = time.monotonic() if patient else LONG_AGO
        future = asyncio.wrap_future(self._executor.submit(self.backend.work, job, asked))
        future.add_done_callback(_heard)
        # Shielded: cancelling whoever waits must not take a queued write back.
        return await asyncio.shield(future)

    def submit(self, job: "Callable[[Database], T]") -> "Future[T]":
        """Queues a job that the caller does not wait for. `RuntimeError` if the thread was closed."""
        self.calls.send()
        return self._executor.submit(self.backend.work, job)

    async def close(self) -> None:
        """Finishes what is queued and closes the database. The store cannot be used afterwards."""
        if self._tidying is not None:
            self._tidying.cancel()
        if self._beat_task is not None:
            self._beat_task.cancel()
        self.calls.send()
        try:
            closing = self._executor.submit(self.backend.close)
        except RuntimeError:  # closed before
            return
        self._executor.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    # --- the database's own work, for when there is time --------------------------------------------------

    def tidy_soon(self) -> None:
        """Once nothing was written for a moment."""
        loop = asyncio.get_running_loop()
        self._tidy_at = loop.time() + _A_PAUSE
        if self._tidying is None:
            self._tidying = loop.call_at(self._tidy_at, self._begin_tidying)

    def _begin_tidying(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._tidy_at:  # something was written since
            self._tidying = loop.call_at(self._tidy_at, self._begin_tidying)
            return
        self._tidying = None
        self._tidy_task = spawn(self._tidy_on())

    async def _tidy_on(self) -> None:
        with suppress(StorageError, RuntimeError):  # a search shows what is wrong; or the store was closed
            while self._tidying is None:
                try:
                    if not await self.do(_tidied_briefly, patient=False):
                        return
                    await asyncio.sleep(_BETWEEN)  # leaves room for others
                except CannotWriteNow:  # nobody who reads has to wait for that
                    await asyncio.sleep(_AFTER_A_FAULT)

    # --- signs of life ---------------------------------------------------------------------------------

    def begin_beating(self) -> None:
        if self._beat_task is None or self._beat_task.done():
            self._beat_task = spawn(self._beat_on())

    async def _beat_on(self) -> None:
        """Tells others that this process lives, as long as it holds a lease."""
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            try:
                pause = await self.do(lambda database: database.leases.beat_all(), patient=False)
            except StorageError:  # the next write tells what is wrong
                pause = _AFTER_A_FAULT
            except RuntimeError:  # closed
                return


def _heard(future: "asyncio.Future[T]") -> None:
    """A fault of a job that nobody waits for any more is no news: the next one meets it too."""
    if not future.cancelled():
        future.exception()


def _tidied_briefly(database: "Database") -> bool:
    with database.connection.briefly():
        return database.tidy()
