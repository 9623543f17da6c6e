"""The event loop of the Python API, in a thread of its own that starts with the first call."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from crushpy.core.errors import UsageError

T = TypeVar("T")
CLOSE_TIMEOUT_S = 10.0


class BackgroundLoop:
    """Runs coroutines for callers in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.open: WeakSet[Any] = WeakSet()
        """What has to be closed before the program ends: each has a coroutine function `_close`."""

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; the calling thread waits."""
        try:
            self.require_other_thread()
        except UsageError:
            work.close()
            raise
        return self.start(work).result()

    def require_other_thread(self) -> None:
        """Raises UsageError if the caller runs in the loop itself, which cannot wait for its own work."""
        if threading.current_thread() is self._thread:
            raise UsageError(
                "This call would wait for itself: it was made by a function that crushpy is running.",
                "Use the call's async form, for example `await agent.ask_async(...)`.",
            )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="crushpy", daemon=True)
                self._thread.start()
                atexit.register(self._close)
            return self._loop

    def _close(self) -> None:
        """Ends what is still open: a turn is interrupted, and its lease released."""

        async def close_all() -> None:
            await asyncio.gather(*(each._close() for each in list(self.open)), return_exceptions=True)

        if self.open:
            try:
                self.start(close_all()).result(CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass


BACKGROUND = BackgroundLoop()
