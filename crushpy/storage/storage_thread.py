"""The one thread on which everything is read and written, in order, with maintenance and heartbeats.

Concurrent writes of calls are committed together: a reply with thousands of calls costs few transactions.
The database is opened on that thread when the first job arrives, so that creating a `Store` costs nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from crushpy.storage.database import Database
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.records import CannotWriteNow, Finding, StorageError
from crushpy.storage.schema_version import refuse_unfinished
from crushpy.util.spawn import spawn

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Subject")
Write = Callable[Concatenate[S, str, P], T]
StoredWrite = Callable[Concatenate[S, str, P], Coroutine[Any, Any, T]]
MAINTENANCE_DELAY_S = 0.25
"""Time without a write after which maintenance begins."""
_MAINTENANCE_PAUSE_S = 0.01
_RETRY_DELAY_S = 10.0
BUSY_FAILURE_S = 5.0
"""A failure after this time means that the database was busy: the writes are not tried one by one."""
Waiting = tuple[Callable[[], None], bool, Future[None]]
"""A write inside a transaction, whether it must be durable, and the future of its caller."""


class StorageThread:
    def __init__(self, location: Location, maintain: Callable[[], bool]) -> None:
        """`maintain` does a few milliseconds of maintenance; False if none is left."""
        self.location, self._maintain = location, maintain
        self._database: Database | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._timer: asyncio.TimerHandle | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._waiting = deque[tuple[str, Waiting]]()

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

        self.location.listen(notify)

    async def run(self, job: Callable[[], T], *, patient: bool = True) -> T:
        """Runs a job on the thread; again after a lost connection, if `patient`."""
        try:
            work = self._executor.submit(lambda: self.database.run(job, patient=patient))
        except RuntimeError:
            raise StorageError("The database was closed meanwhile.") from None
        return await _uncancelled(work)

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Queues a job that the caller does not wait for. `RuntimeError` if the thread was closed."""
        return self._executor.submit(lambda: self.database.run(job, patient=True))

    async def write_together(self, session: str, write: Callable[[], None], *, durable: bool = False) -> None:
        """Returns once it is committed, in one transaction with all others that wait for the session."""
        done = Future[None]()
        self._waiting.append((session, (write, durable, done)))
        self._executor.submit(self._write_waiting)
        await _uncancelled(done)

    def _write_waiting(self) -> None:
        groups: dict[str, list[Waiting]] = {}
        while self._waiting:
            session, waiting = self._waiting.popleft()
            groups.setdefault(session, []).append(waiting)
        for session, group in groups.items():
            self._write_group(session, group)

    def _write_group(self, session: str, group: Sequence[Waiting]) -> None:
        """If the group fails, each write is tried by itself: an invalid one does not affect the others."""

        def commit() -> None:
            with self.database.transaction(durable=any(durable for _, durable, _ in group), session=session):
                for write, *_ in group:
                    write()

        began = time.monotonic()
        try:
            self.database.run(commit, patient=True)
        except Exception as failure:
            if len(group) > 1 and time.monotonic() - began < BUSY_FAILURE_S:
                for entry in group:
                    self._write_group(session, [entry])
                return
            for *_, done in group:
                done.set_exception(failure)
        else:
            for *_, done in group:
                done.set_result(None)

    async def close(self) -> None:
        """Finishes the queued jobs and closes the database. The thread cannot be used afterwards."""
        for later in filter(None, (self._timer, self._heartbeat)):
            later.cancel()
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
        if self._timer is not None:
            self._timer.cancel()

        def begin() -> None:
            self._timer = None
            self._maintenance = spawn(self._run_maintenance())

        self._timer = asyncio.get_running_loop().call_later(MAINTENANCE_DELAY_S, begin)

    async def _run_maintenance(self) -> None:
        def maintain() -> bool:
            with self.database.no_wait():
                return self._maintain()

        with suppress(StorageError, RuntimeError):  # a search shows the error; or the store was closed
            while self._timer is None:
                try:
                    if not await self.run(maintain, patient=False):
                        return
                    await asyncio.sleep(_MAINTENANCE_PAUSE_S)
                except CannotWriteNow:
                    await asyncio.sleep(_RETRY_DELAY_S)

    # --- heartbeats -------------------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = spawn(self._send_heartbeats())

    async def _send_heartbeats(self) -> None:
        """Tells others that this process is alive, as long as it holds a lease."""
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            try:
                pause = await self.run(lambda: self.database.leases.renew_all(), patient=False)  # noqa: PLW0108
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


def written(*, durable: bool = False) -> "Callable[[Write[S, P, T]], StoredWrite[S, P, T]]":
    """Makes a method of a subject one transaction on the storage thread. Its first argument names the session
    or conversation that it writes to."""

    def decorate(work: "Write[S, P, T]") -> "StoredWrite[S, P, T]":
        @wraps(work)
        def write(subject: S, session: str, *args: P.args, **kwargs: P.kwargs) -> T:
            with subject._db.transaction(durable=durable, session=session):  # pyright: ignore[reportPrivateUsage]
                return work(subject, session, *args, **kwargs)

        return stored(write)

    return decorate


async def _uncancelled(work: "Future[T]") -> T:
    """Waits for a queued job, which a cancelled caller does not cancel."""
    future = asyncio.wrap_future(work)
    # An error of a job whose caller was cancelled needs no report: the next job meets it as well.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(future)


# --- opening the database, on that thread


def open_database(location: Location) -> Database:
    """The library of a database is imported only if it is used."""
    if location.server is not None:
        _require_psycopg(location.place)
        from crushpy.storage.postgres_database import PostgresDatabase

        database: Database = PostgresDatabase(location, location.server)
    else:
        from crushpy.storage.sqlite_file import SqliteDatabase, explained

        with explained(location.file):
            database = SqliteDatabase(location)
    try:
        database.run(database.prepare, patient=False)
        database.run(lambda: refuse_unfinished(database, location), patient=False)
    except BaseException:
        database.close()
        raise
    return database


def _require_psycopg(place: str) -> None:
    try:
        import psycopg as _  # noqa: F401
    except ImportError as error:
        raise StorageError(
            f"{place} needs psycopg, which is not installed: {error}",
            "Install it with `pip install 'crushpy[postgres]'`.",
        ) from error


def examine_server(address: ServerAddress) -> list[Finding]:
    """Asks a server for its state; nothing is created there. `StorageError` if it cannot be asked."""
    _require_psycopg(address.shown)
    from crushpy.storage import postgres_database

    return postgres_database.list_findings(address)
