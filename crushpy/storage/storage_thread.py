"""The one thread on which everything is read and written, in order, with maintenance and heartbeats.

The database is opened on that thread when the first job arrives, so that creating a `Store` costs nothing.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from crushpy.storage.database import NEVER, Database
from crushpy.storage.group_commit import GroupCommit
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.records import CannotWriteNow, ServerReport, StorageError
from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    from crushpy.storage.group_commit import Commit

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Subject")
MAINTENANCE_DELAY_S = 0.25
"""Time without a write after which maintenance begins."""
_MAINTENANCE_PAUSE_S = 0.01
_RETRY_DELAY_S = 10.0


class StorageThread:
    def __init__(self, location: Location) -> None:
        self.location = location
        self.maintain: Callable[[], bool] = lambda: False
        """A few milliseconds of maintenance; False if none is left."""
        self.write_calls: Commit = _no_calls
        """Writes of tool calls to one conversation, in one transaction."""
        self._database: Database | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._timer: asyncio.TimerHandle | None = None
        self._maintain_at = 0.0
        self._maintenance: asyncio.Task[None] | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self.calls = GroupCommit(
            self._executor.submit,
            lambda where, writes: self._work(lambda: self.write_calls(where, writes), time.monotonic()),
        )

    @property
    def database(self) -> Database:
        """On the storage thread only."""
        if self._database is None:
            self._database = open_database(self.location)
        return self._database

    def open_in_background(self) -> None:
        """A failure shows at the first job."""
        self._executor.submit(lambda: self.database)

    def listen(self, listener: Callable[[str], None]) -> None:
        """From now on `listener` is called, in this loop, with notices for the user while a job waits."""
        loop = asyncio.get_running_loop()

        def notify(text: str) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(listener, text)

        self.location.notify = notify

    async def run(self, job: Callable[[], T], *, patient: bool = True) -> T:
        """Runs a job on the thread; again after a lost connection, if `patient`."""
        self.calls.send()
        asked = time.monotonic() if patient else NEVER
        future = asyncio.wrap_future(self._executor.submit(self._work, job, asked))
        future.add_done_callback(_retrieve_exception)
        # Shielded: cancelling the caller must not cancel a queued write.
        return await asyncio.shield(future)

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Queues a job that the caller does not wait for. `RuntimeError` if the thread was closed."""
        self.calls.send()
        return self._executor.submit(self._work, job, time.monotonic())

    def _work(self, job: Callable[[], T], asked: float) -> T:
        return self.database.run(job, asked)

    async def close(self) -> None:
        """Finishes the queued jobs and closes the database."""
        if self._timer is not None:
            self._timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self.calls.send()
        try:
            closing = self._executor.submit(self._close)
        except RuntimeError:  # closed before
            return
        self._executor.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    # --- maintenance, while nothing is written ----------------------------------------------------------

    def schedule_maintenance(self) -> None:
        loop = asyncio.get_running_loop()
        self._maintain_at = loop.time() + MAINTENANCE_DELAY_S
        if self._timer is None:
            self._timer = loop.call_at(self._maintain_at, self._begin_maintenance)

    def _begin_maintenance(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._maintain_at:  # something was written since
            self._timer = loop.call_at(self._maintain_at, self._begin_maintenance)
            return
        self._timer = None
        self._maintenance = spawn(self._run_maintenance())

    async def _run_maintenance(self) -> None:
        with suppress(StorageError, RuntimeError):  # a search shows the error; or the store was closed
            while self._timer is None:
                try:
                    if not await self.run(self._maintain_without_waiting, patient=False):
                        return
                    await asyncio.sleep(_MAINTENANCE_PAUSE_S)
                except CannotWriteNow:
                    await asyncio.sleep(_RETRY_DELAY_S)

    def _maintain_without_waiting(self) -> bool:
        with self.database.no_wait():
            return self.maintain()

    # --- heartbeats -------------------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = spawn(self._send_heartbeats())

    def _renew_leases(self) -> float | None:
        return self.database.leases.renew_all()

    async def _send_heartbeats(self) -> None:
        """Tells others that this process is alive, as long as it holds a lease."""
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            try:
                pause = await self.run(self._renew_leases, patient=False)
            except StorageError:  # the next write reports it
                pause = _RETRY_DELAY_S
            except RuntimeError:  # closed
                return


class Subject:
    """A part of the store's API. Its `@stored` methods are plain functions that run on the storage thread."""

    def __init__(self, thread: StorageThread) -> None:
        self._thread = thread

    @property
    def _db(self) -> Database:
        return self._thread.database


def stored(work: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Makes a method of a subject run on the storage thread: one job, in the order of the calls."""

    @wraps(work)
    async def run(subject: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return await subject._thread.run(lambda: work(subject, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return run


def _retrieve_exception(future: "asyncio.Future[T]") -> None:
    """An error of a job whose caller was cancelled needs no report: the next job meets it as well."""
    if not future.cancelled():
        future.exception()


def _no_calls(*_: object) -> None:
    raise AssertionError("no store uses this thread")


# --- opening the database, on that thread


def open_database(location: Location) -> Database:
    """The library of a database is imported only if it is used."""
    if location.server is not None:
        _require_psycopg(location.place)
        from crushpy.storage.postgres_database import open_server

        return open_server(location, location.server)
    from crushpy.storage.sqlite_database import open_file

    location.salvage = _salvage
    return open_file(location)


def _salvage(damaged: Path, new: Path) -> int:
    from crushpy.storage.salvage import salvage

    return salvage(damaged, new)


def _require_psycopg(place: str) -> None:
    try:
        import psycopg as _  # noqa: F401
    except ImportError as error:
        raise StorageError(
            f"{place} needs psycopg, which is not installed: {error}",
            "Install it with `pip install 'crushpy[postgres]'`.",
        ) from error


def examine_server(url: str) -> ServerReport:
    """Asks a server for its state; nothing is created there. `StorageError` if it cannot be asked."""
    _require_psycopg(ServerAddress(url).shown)
    from crushpy.storage.postgres_server import query_server_state

    return query_server_state(ServerAddress(url))
