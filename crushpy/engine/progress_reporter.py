"""Long work of our own tells how far it is: nothing while it is quick, and always that it is over."""

import asyncio
import time
from collections.abc import Callable
from typing import Self

from crushpy.core.events import Event, Progress

QUICK = 0.5
"""Seconds in which nobody has to be told."""
_PACE = 0.1
"""Seconds between two words about it."""


class ProgressReporter:
    """Entered where the work begins. However it ends, what was told of it is taken back."""

    def __init__(self, emit: Callable[[Event], None], what: str, total: int = 0) -> None:
        """`total` is 0 where nobody knows."""
        self._emit = emit
        self._what = what
        self._done, self._total = 0, total
        self._due: asyncio.TimerHandle | None = None
        self._told_at: float | None = None

    def __enter__(self) -> Self:
        self._due = asyncio.get_running_loop().call_later(QUICK, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        if self._due is not None:
            self._due.cancel()
        if self._told_at is not None:
            whole = self._total or 1
            self._emit(Progress(self._what, whole, whole))

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done; `total` where it is another one now."""
        self._total = self._total if total is None else total
        self._done = done
        if self._told_at is not None and time.monotonic() >= self._told_at + _PACE:
            self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        most = self._total - 1 if self._total else 0  # all of it means that it is over
        self._emit(Progress(self._what, min(self._done, most), self._total))
