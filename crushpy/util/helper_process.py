"""Processes of our own that import what is slow to import: messages of one line each, through two pipes."""

import asyncio
import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, BinaryIO, ClassVar, Generic, Self, TypeVar

import crushpy
from crushpy.core.own_code import is_importable
from crushpy.security.sanitize import to_json

_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from crushpy.core.own_code import restrict_imports
restrict_imports()
from importlib import import_module
getattr(import_module(sys.argv[2]), sys.argv[3])()
"""
Answer = TypeVar("Answer")


class HelperProcess(Generic[Answer]):
    """One process that runs a function. `ended` once nothing can be sent to it any more.

    Two threads own the pipes, so requests may come from any event loop. Raises OSError if it cannot start.
    """

    idle_timeout_s: float | None = None
    """It is ended after this time without a request."""
    current: ClassVar[Any] = None
    """The last process of its kind that was shared."""

    @classmethod
    def shared(cls) -> Self:
        """The process that all conversations share, started if it is not running."""
        if cls.current is None or cls.current.ended:
            cls.current = cls()  # pyright: ignore[reportCallIssue]  # subclasses need no arguments
        return cls.current

    def __init__(
        self, function: str, environment: Mapping[str, str], *, stderr: IO[Any] | None = None, cwd: str = ""
    ) -> None:
        folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(each for each in folders if Path(each).is_absolute() and is_importable(each))
        own = str(Path(crushpy.__file__).parents[1])
        self.process = subprocess.Popen(
            # -P: the current folder, which belongs to the user's project, is not on sys.path.
            [sys.executable, "-P", "-c", _SCRIPT, own, *function.split(":")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr or subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": path},
            cwd=cwd or None,
            start_new_session=True,  # Ctrl+C in the terminal is for the app
        )
        self.pid = self.process.pid
        self.ended = False
        self._ids = count(1)
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Answer]]] = {}
        self._outgoing: SimpleQueue[Any] = SimpleQueue()
        atexit.register(self.end)
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"{function} pipe", daemon=True).start()

    def receive(self, line: bytes) -> None:
        """Handles a line of the process, in the reader's thread. What it raises ends the process."""
        raise NotImplementedError

    def explain_end(self, error: Exception | None) -> Answer:
        """The answer of every open request once the process has ended. `error`: of `receive`."""
        raise NotImplementedError

    def begin_request(self) -> "tuple[int, asyncio.Queue[Answer]]":
        """The number of a request, and where its answers arrive."""
        number, answers = next(self._ids), asyncio.Queue[Answer]()
        self._waiting[number] = asyncio.get_running_loop(), answers
        if self.ended:  # too late for the reader's thread to say so
            answers.put_nowait(self.explain_end(None))
        return number, answers

    def end_request(self, number: int) -> None:
        del self._waiting[number]

    def send(self, message: Any) -> None:
        self._outgoing.put(message)

    def deliver(self, number: int, answer: Answer) -> None:
        if (waiting := self._waiting.get(number)) is not None:
            loop, answers = waiting
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(answers.put_nowait, answer)

    def end(self) -> None:
        """Closes the pipe, which ends the process."""
        self.ended = True
        self._outgoing.put(None)

    def _write(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError), self.process.stdin as pipe:
            while not self.ended or not self._outgoing.empty():
                try:
                    message = self._outgoing.get(timeout=self.idle_timeout_s)
                except Empty:
                    if not self._waiting:
                        self.end()
                    continue
                if message is not None:
                    pipe.write(encode_line(message))
                    pipe.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        failure: Exception | None = None
        try:
            with self.process.stdout as pipe:
                for line in pipe:
                    self.receive(line)
        except Exception as error:
            failure = error
        self.end()
        answer = self.explain_end(failure)
        for number in list(self._waiting):
            self.deliver(number, answer)
        self.process.wait()


def encode_line(message: object) -> bytes:
    """A message as it passes through a pipe."""
    return to_json(message) + b"\n"


def take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """In the process: its two pipes, which become our own: what a library prints goes to stderr."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return incoming, outgoing


def listen(
    incoming: BinaryIO, receive: Callable[[bytes], object], finish: Callable[[BaseException | None], object]
) -> None:
    """In the process: calls `receive` with each line, then `finish`. The thread notices the end of crushpy
    while libraries load or the event loop is blocked."""

    def work() -> None:
        failure: BaseException | None = None
        try:
            for line in incoming:
                receive(line)
        except BaseException as error:
            failure = error
        finish(failure)

    threading.Thread(target=work, daemon=True).start()
