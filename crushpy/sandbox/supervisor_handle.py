"""Crushpy's handle of a supervisor process, which runs commands and dies with crushpy."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from crushpy.core.messages import Data

_ROOT = str(Path(__file__).parents[2])
_IMPORT = "import sys; sys.path.append(sys.argv.pop(1)); from crushpy.sandbox.supervisor import main; main."
_MAX_ERROR_BYTES = 2_000


class SupervisedCommand:
    """One command: what its supervisor has reported about it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exited = asyncio.Event()
        """Its shell has ended."""
        self.ended = asyncio.Event()
        """It was asked to end, and has."""
        self.over = asyncio.Event()
        """No process of it is left."""
        self.started_at, self.stopped_at = time.monotonic(), 0.0
        self.status: int | None = None
        """The wait status of its shell."""
        self.refused: int | None = None
        """The errno with which it could not be started."""
        self.limit: tuple[str, int] | None = None
        """It was killed because it used more of this than so much."""
        self.lost: str | None = None
        """Why the supervisor is gone, and the command with it."""
        self.survivors: list[int] = []
        """The processes that are still alive after its end."""

    def report(self, verb: str, words: list[str]) -> None:
        match verb:
            case "exit" if not self.exited.is_set():
                self.status = int(words[0])
                self._stop()
            case "failed":
                self.refused = int(words[0])
            case "limit":
                self.limit = words[0], int(words[1])
            case "ended":
                self.survivors = [int(word) for word in words]
                self.ended.set()
            case "over":
                self.over.set()
                self.ended.set()
            case "lost":
                self.lost = " ".join(words)
                self._stop()
                self.over.set()
                self.ended.set()
            case _:
                pass

    def _stop(self) -> None:
        self.stopped_at = self.stopped_at or time.monotonic()
        self.exited.set()


class Supervisor:
    """One supervisor. `words` are its limits, `wrapper` the sandbox command line in front of its own.

    Must be created in a long-lived thread: a child that dies with its parent dies with the parent's thread.
    """

    def __init__(
        self,
        words: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        options: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`options` are passed by descriptor, since they may be many: to the sandbox, or to the supervisor
        itself if there is nothing around it."""
        self._words, self._wrapper, self._options = words, wrapper, options
        self._loop = asyncio.get_running_loop()
        self._unsent: list[tuple[bytes, list[int]]] = []
        self._commands: dict[str, SupervisedCommand] = {}
        self._started = 0
        self._ended = asyncio.Event()
        self._survivors: list[int] = []
        self._attempts_left = 2
        self._start()

    def _start(self) -> None:
        """Starts the process. Nothing is sent to it before it is ready: until then it can be replaced."""
        self._attempts_left -= 1
        self._ready = False
        options = self._options()
        ours, theirs = socket.socketpair()
        with theirs:
            files = [_write_to_file(options)] if options else []
            command = [*_python("main"), str(theirs.fileno()), *self._words]
            if not self._wrapper:
                command += (f"landlock={file}" for file in files)
            else:
                passed = [word for file in files for word in ("--args", str(file), "--")]
                command = [*self._wrapper, *passed, *command]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={},
                    cwd="/",
                    pass_fds=(theirs.fileno(), *files),
                    start_new_session=True,
                )
            finally:
                for file in files:
                    os.close(file)
        self._link = ours
        self._link.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._read)
        self._unread = b""

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def busy(self) -> bool:
        """True while a process of a command runs."""
        return bool(self._commands)

    def run(
        self,
        arguments: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> SupervisedCommand:
        """Starts a command. Raises ValueError if it contains a null byte.

        `streams`: where its output goes, and maybe its errors, and what it reads."""
        order = _write_order(arguments, cwd, environment)
        self._started += 1
        command = SupervisedCommand(str(self._started))
        self._commands[command.name] = command
        self._send(f"run {command.name} {len(streams)}", order, *map(os.dup, streams))
        return command

    def end(self, command: SupervisedCommand, grace: float) -> None:
        self._send(f"end {command.name} {grace}")

    def kill(self, command: SupervisedCommand) -> None:
        self._send(f"kill {command.name}")

    async def close(self, grace: float) -> list[int]:
        """Ends all commands, then itself; returns the survivors. If cancelled, everything is killed."""
        if self.alive:
            self._send(f"close {grace}")
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self._attempts_left = 0
            self._handle_loss("it was closed")
            raise
        return self._survivors

    # --- sending ------------------------------------------------------------------------------------------

    def _send(self, line: str, *descriptors: int) -> None:
        self._unsent.append((line.encode() + b"\n", list(descriptors)))
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self.alive and self._ready:
            line, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._link, [line], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._link.fileno(), self._flush)
                return
            except OSError:
                self._handle_loss(self._read_error())
                return
            self._unsent.pop(0)
            for descriptor in descriptors:
                os.close(descriptor)
        if self.alive:
            self._loop.remove_writer(self._link.fileno())

    # --- receiving ----------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = self._link.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._handle_loss(self._read_error())
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, *words = line.decode(errors="replace").split()
            self._handle_report(verb, words)

    def _handle_report(self, verb: str, words: list[str]) -> None:
        if verb == "ready":
            self._ready = True
            self._flush()
        if verb == "closed":
            self._survivors = [int(word) for word in words]
        command = self._commands.get(words[0]) if words else None
        if command is not None:
            command.report(verb, words[1:])
            if verb == "over":
                del self._commands[command.name]

    def _handle_loss(self, trouble: str) -> None:
        """The supervisor ended, or has to."""
        if not self.alive:
            return
        self._loop.remove_reader(self._link.fileno())
        self._loop.remove_writer(self._link.fileno())
        self._link.close()
        with suppress(RuntimeError):  # while the interpreter exits, the system reaps it
            threading.Thread(target=_reap, args=(self._process,), daemon=True).start()
        if not self._ready and self._attempts_left:
            # A file or socket that the sandbox was to hide may have disappeared while it started.
            with suppress(OSError):
                self._start()
                return
        self._ended.set()
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        for command in self._commands.values():
            command.report("lost", trouble.split())
        self._commands.clear()

    def _read_error(self) -> str:
        """The last line that it, or the sandbox around it, wrote to stderr."""
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        with suppress(OSError):
            text = os.read(self._process.stderr.fileno(), _MAX_ERROR_BYTES).decode(errors="replace").strip()
            if text:
                return text.splitlines()[-1]
        return ""


class Wrapper(Data, frozen=True):
    """A sandbox for a single program."""

    command: tuple[str, ...] = ()
    """The sandbox and its options; empty: none."""
    words: tuple[str, ...] = ()
    """The limits of the program, as of a supervisor."""


@contextmanager
def prepare_start(
    wrapper: Wrapper, arguments: Sequence[str], cwd: str, environment: Mapping[str, str]
) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """The command line that starts a program without a supervisor, and the descriptors to pass to it.

    Run it in `/` with an empty environment. The program's arguments and environment are read inside the
    sandbox: outside, a variable could load a library into the sandbox itself, and other users can read
    command lines.
    """
    order = _write_order(arguments, cwd, environment)
    command, files = [*_python("become"), str(order), *wrapper.words], [order]
    try:
        if wrapper.command:
            files.append(_write_to_file(wrapper.command[1:]))
            command = [wrapper.command[0], "--args", str(files[1]), "--", *command]
        yield command, tuple(files)
    finally:
        for file in files:
            os.close(file)


def _python(function: str) -> list[str]:
    """The command line of a function of the supervisor's module; its arguments follow."""
    return [sys.executable, "-I", "-S", "-c", f"{_IMPORT}{function}()", _ROOT]


def _reap(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        if process.stderr is not None:
            process.stderr.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _write_order(arguments: Sequence[str], cwd: str, environment: Mapping[str, str]) -> int:
    variables = (f"{name}={value}" for name, value in environment.items())
    return _write_to_file([cwd, str(len(arguments)), *arguments, *variables])


def _write_to_file(words: Sequence[str]) -> int:
    """A descriptor from which the NUL-separated `words` can be read."""
    if any("\0" in word for word in words):
        raise ValueError("embedded null byte")
    data = b"\0".join(map(os.fsencode, words))
    with (
        open(os.memfd_create("order"), "wb") if sys.platform == "linux" else tempfile.TemporaryFile()
    ) as file:
        file.write(data)
        file.seek(0)
        return os.dup(file.fileno())
