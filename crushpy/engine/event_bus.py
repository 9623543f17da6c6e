"""Passes every event on to all listeners, in order; stores notes, reports progress and unexpected errors."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import msgspec

from crushpy.core import events
from crushpy.core.errors import CrushpyError
from crushpy.core.timeline_notes import NoteMaker

if TYPE_CHECKING:
    from crushpy.engine.session.session import LiveSession
    from crushpy.storage.store import Store

Listener = Callable[[events.Event], None]
PROGRESS_DELAY_S = 0.5
"""Work that takes less is not reported."""
PROGRESS_INTERVAL_S = 0.1


class EventBus:
    """Holds notices back until a front end listens and a new session has emitted its `prompt`."""

    def __init__(self, *, opened: bool) -> None:
        self.record: Listener = lambda _: None
        """Stores what has to be stored of an event, before it is emitted."""
        self._listeners: list[Listener] = []
        self._opened = opened
        self._joined = False
        self._held_back: list[events.Notice] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with the notices held back so far and with every event from now on. Returns a
        function that unsubscribes it."""
        self._listeners.append(listener)
        self._joined = True
        self._emit_held_back()
        return lambda: self._listeners.remove(listener)

    def _emit_held_back(self) -> None:
        if self._joined and self._opened:
            held_back, self._held_back = self._held_back, []
            for notice in held_back:
                self(notice)

    def emit_now(self, notice: events.Notice) -> None:
        """Emits a notice even while the first prompt is not committed yet."""
        self(notice, now=True)

    def __call__(self, event: events.Event, *, now: bool = False) -> None:
        if isinstance(event, events.Notice) and not (self._joined and (now or self._opened)):
            self._held_back.append(event)
            return
        self.record(event)
        for listener in tuple(self._listeners):
            listener(event)
        if isinstance(event, events.PromptCommitted) and not self._opened:
            self._opened = True
            self._emit_held_back()


class ProgressReporter:
    """A context manager around long work. Emits nothing if it is quick; always emits its end otherwise."""

    def __init__(self, emit: Callable[[events.Event], None], what: str, total: int = 0) -> None:
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


class NoteRecorder:
    """Stores the timeline notes of a conversation: interruptions, errors, warnings, ended jobs. Called by the
    event bus before it emits an event. Writing happens in the background."""

    def __init__(self, store: "Store", session: "LiveSession") -> None:
        self._store = store
        self._session = session
        self._notes = NoteMaker()
        self._calls_announced = False

    def record(self, event: events.Event) -> None:
        if type(event) is events.TextDelta:  # thousands of them
            return
        note = self._notes.make_note(event)
        lasting = self._notes.lasting or isinstance(event, events.JobEnded)
        if note is not None and (lasting or note.kind == "aside") and self._session.stored:
            history = self._session.history
            note = msgspec.structs.replace(
                note,
                after=history[-1].id if history else "",
                early=bool(history and history[-1].calls) and not self._calls_announced,
                at=time.time(),
            )
            self._session.notes.append(note)
            self._store.notes.record(self._session.info.id, note)
        match event:
            case events.MessageCommitted():
                self._calls_announced = False
            case events.ToolCalled():
                self._calls_announced = True
            case events.TurnEnded():
                self._notes.lasting = False
            case _:
                pass
