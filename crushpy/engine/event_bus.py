"""Passes every event on to all listeners, in order; reports progress and unexpected errors."""

import asyncio
import time
from collections.abc import Callable
from typing import Self

from crushpy.core import events
from crushpy.core.errors import CrushpyError
from crushpy.core.timeline_notes import TimelineNote

NoteListener = Callable[[TimelineNote], None]
NoteMaker = Callable[[events.Event], TimelineNote | None]
PROGRESS_DELAY_S = 0.5
"""Work that takes less is not reported."""
PROGRESS_INTERVAL_S = 0.1


class EventBus:
    """Holds notices back until a front end listens and a new session has emitted its `prompt`. Listeners show
    things: what lasts is stored before they are called, notes in the background."""

    def __init__(self, *, opened: bool) -> None:
        self._make_note: NoteMaker = lambda _: None
        self._listeners: list[tuple[events.Emit, NoteListener]] = []
        self._opened = opened
        self._joined = False
        self._held_back: list[events.Notice] = []

    def take_notes(self, make_note: NoteMaker) -> None:
        """From now on `make_note` stores the note of an event, if it has one, before the listeners get it."""
        self._make_note = make_note

    def subscribe(self, listener: events.Emit, on_note: NoteListener = lambda _: None) -> Callable[[], None]:
        """Calls `listener` with the notices held back so far and with every event from now on, and `on_note`
        with the note of an event after it. Returns a function that unsubscribes both."""
        both = listener, on_note
        self._listeners.append(both)
        self._joined = True
        self._emit_held_back()
        return lambda: self._listeners.remove(both)

    def _emit_held_back(self) -> None:
        if self._joined and self._opened:
            held_back, self._held_back = self._held_back, []
            for notice in held_back:
                self(notice)

    def __call__(self, event: events.Event, *, now: bool = False) -> None:
        """Emits an event. `now`: a notice even while the first prompt is not committed yet."""
        if isinstance(event, events.Notice) and not (self._joined and (now or self._opened)):
            self._held_back.append(event)
            return
        note = self._make_note(event)
        for listener, on_note in tuple(self._listeners):
            listener(event)
            if note is not None:
                on_note(note)
        if isinstance(event, events.PromptCommitted) and not self._opened:
            self._opened = True
            self._emit_held_back()


class ProgressReporter:
    """A context manager around long work. Emits nothing if it is quick; always emits its end otherwise."""

    def __init__(self, emit: events.Emit, what: str, total: int = 0) -> None:
        """`total` is 0 if it is unknown."""
        self._emit = emit
        self._what = what
        self._done, self._total = 0, total
        self._due: asyncio.TimerHandle | None = None
        self._reported_at: float | None = None

    def __enter__(self) -> Self:
        self._due = asyncio.get_running_loop().call_later(PROGRESS_DELAY_S, self._report)
        return self

    def __exit__(self, *_: object) -> None:
        if self._due is not None:
            self._due.cancel()
        if self._reported_at is not None:
            whole = self._total or 1
            self._emit(events.Progress(self._what, whole, whole))

    def update(self, done: int, total: int | None = None) -> None:
        """Sets how much is done; `total` if it changed."""
        self._total = self._total if total is None else total
        self._done = done
        if self._reported_at is not None and time.monotonic() >= self._reported_at + PROGRESS_INTERVAL_S:
            self._report()

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        most = self._total - 1 if self._total else 0  # done == total means that the work is over
        self._emit(events.Progress(self._what, min(self._done, most), self._total))


def unexpected_error(error: Exception) -> CrushpyError:
    """The error to show for a bug. Its text may hold anything, keys included."""
    from crushpy.security.redact import redact

    return CrushpyError(
        redact(f"Internal error: {type(error).__name__}: {error}"),
        "Stored data is intact. See the log file for details; `crushpy doctor` shows where it is.",
    )
