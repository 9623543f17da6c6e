"""Writes to the terminal in the background, and never more than it can show: what waits is drawn later.

Uses private names of Textual 8.2.8.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

import asyncio
import select
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Queue
from threading import Event
from typing import IO

from textual.app import App
from textual.drivers._writer_thread import WriterThread

from crushpy.tui.terminal.pace import QUESTION, UNBOUNDED, Pace

LAST_ANSWER = 0.5
"""Seconds to wait for an answer before the terminal is given back: it must not come to a shell."""

PIECE = 8_192
"""Bytes up to which what waits is written at once."""

HELD_UP = 0.25
"""Seconds that a write takes only where the terminal is in the way, not other threads of ours."""


class PacedOutput(WriterThread):
    """While the terminal is behind, the app draws nothing; what can wait is drawn when there is room."""

    def __init__(self, file: IO[str], app: App[object]) -> None:
        super().__init__(file)
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._pace = Pace()
        self._texts: Queue[tuple[str, int] | None] = Queue()
        self._waiting: list[Callable[[], None]] = []
        self._holds = False
        """Whether the app was told to draw nothing."""
        self._due: asyncio.TimerHandle | None = None
        self._asks = True
        self._answer_came = Event()
        self._answer_came.set()

    # --- on the event loop's thread ----------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes that the terminal takes now without keeping a key waiting; 0: none, see `when_free`."""
        return self._pace.room

    @property
    def is_slow(self) -> bool:
        """The terminal was behind a short while ago."""
        return self._pace.is_slow

    def when_free(self, draw: Callable[[], None]) -> None:
        """Calls once there is room."""
        if draw not in self._waiting:
            self._waiting.append(draw)
        self._watch()

    def write(self, text: str) -> None:
        size = len(text.encode(errors="replace"))
        self._put(text, size)
        if not self._holds and self._pace.is_behind:
            self._holds = True
            self._app._begin_batch()
            self._watch()

    def answered(self) -> None:
        """From any thread: the terminal has drawn what came before the question."""
        self._answer_came.set()
        with suppress(RuntimeError):  # the loop may have gone
            # The loop may be busy: what it takes to get there is not the terminal's.
            self._loop.call_soon_threadsafe(self._note_answer, time.monotonic())

    def give_back(self) -> None:
        """The terminal is another's from now on: nothing is asked any more, and no answer is under way."""
        self._asks = False
        self._answer_came.wait(LAST_ANSWER if self._pace.answers else 0)
        if self._holds:
            self._holds = False
            self._app._end_batch()

    def stop(self) -> None:
        self._texts.put(None)
        self.join()

    def _put(self, text: str, size: int) -> None:
        if self._asks and self._pace.writes(size):
            self._answer_came.clear()
            text += QUESTION
        self._texts.put((text, size))

    def _note_answer(self, at: float) -> None:
        if self._pace.answered(at):
            self._put("", 0)
        self._look()

    def _note_write(self, held_up: float) -> None:
        self._pace.wrote(held_up)
        self._look()

    def _watch(self) -> None:
        if self._due is None and (self._waiting or self._holds):
            self._due = self._loop.call_later(self._pace.look_again, self._look_again)

    def _look_again(self) -> None:
        self._due = None
        self._look()

    def _look(self) -> None:
        """Lets those draw who wait, once there is room."""
        if self._holds and not self._pace.is_behind:
            self._holds = False
            self._app._end_batch()
            if self._app._running and self._app.screen_stack:
                self._app.screen.check_idle()
        for _ in range(len(self._waiting)):
            if not self._pace.room:
                break
            self._waiting.pop(0)()
        self._watch()

    # --- on its own thread -------------------------------------------------------------------------------

    def run(self) -> None:
        while (waiting := self._next()) is not None:
            text, size = waiting
            began = time.monotonic()
            self._file.write(text)
            self._file.flush()
            took = time.monotonic() - began
            held_up = took if took > HELD_UP else self._wait_writable()
            self._pace.written += size
            if held_up or self._waiting or self._holds or self._pace.is_slow:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._note_write, held_up)
        self._file.flush()

    def _next(self) -> tuple[str, int] | None:
        """What waits, as one piece: a frame comes in several. None at the end."""
        first = self._texts.get()
        if first is None or self._texts.empty():
            return first
        pieces = [first]
        while sum([size for _, size in pieces]) < PIECE and not self._texts.empty():
            more = self._texts.get()
            if more is None:
                self._texts.put(None)
                break
            pieces.append(more)
        return "".join([text for text, _ in pieces]), sum([size for _, size in pieces])

    def _wait_writable(self) -> float:
        """Seconds until the kernel takes more; 0 where it does."""
        if select.select([], [self._file], [], 0)[1]:
            return 0.0
        began = time.monotonic()
        select.select([], [self._file], [])
        return time.monotonic() - began


def output_of(app: App[object]) -> PacedOutput | None:
    """Where the app writes to; None where that is no terminal of ours."""
    writer = getattr(app._driver, "_writer_thread", None)
    return writer if isinstance(writer, PacedOutput) else None


def room_for(app: App[object]) -> int:
    """Bytes that can be drawn now; 0 while what went before is under way."""
    output = output_of(app)
    return UNBOUNDED if output is None else output.room
