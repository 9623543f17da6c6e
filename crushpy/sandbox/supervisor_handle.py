"""A keeper as crushpy holds it: a process that runs commands for us, and dies with us."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_PACKAGES = str(Path(__file__).parents[2])
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from crushpy.sandbox.supervisor.main import main; main()"
)
_MAX_TROUBLE = 2_000


class KeptCommand(Protocol):
    """Who is told what becomes of one command. None of these may raise."""

    def on_exit(self, status: int) -> None:
        """Its shell ended; `status` as waitpid gives it."""

    def on_refusal(self, error: int) -> None:
        """The system did not start it, with this errno."""

    def on_limit(self, what: str, most: int) -> None:
        """It is being killed: it used more than `most` of `what`."""

    def on_end(self, survivors: list[int]) -> None:
        """What `end` or `kill` asked for is done."""

    def on_over(self) -> None:
        """Nothing of it is left."""

    def on_loss(self, trouble: str) -> None:
        """The keeper is gone, and the command with it."""


def keeper_program(words: Sequence[str]) -> list[str]:
    """What starts a keeper; the descriptor of its socket comes first among `words`."""
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGES, *words]


def needed_folders() -> tuple[str, ...]:
    """What a keeper must be able to read in order to start."""
    return tuple(dict.fromkeys((sys.base_prefix, sys.prefix, str(Path(sys.executable).parent), _PACKAGES)))


class Keeper:
    """One keeper. `words` tell it its limits, `around` is what comes before its own command line: a sandbox.

    Must be made in a thread that lasts: where a child ends with its parent, the parent is a thread.
    """

    def __init__(
        self, words: Sequence[str] = (), around: Sequence[str] = (), options: Sequence[str] = ()
    ) -> None:
        """`options`: for the sandbox, handed over by descriptor since they may be many; for the keeper itself
        where nothing is around it."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno()]
            handed = _as_file(options) if options else None
            held = () if around or handed is None else (f"landlock={handed}",)
            command = [*keeper_program([str(theirs.fileno()), *words, *held])]
            if handed is not None:
                descriptors.append(handed)
            if around:
                given = [] if handed is None else ["--args", str(handed), "--"]
                command = [*around, *given, *command]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={},
                    cwd="/",
                    pass_fds=descriptors,
                    start_new_session=True,
                )
            finally:
                if handed is not None:
                    os.close(handed)
        self._link = ours
        self._link.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._read)
        self._unread = b""
        self._unsent: list[tuple[bytes, list[int]]] = []
        self._commands: dict[str, KeptCommand] = {}
        self._started = 0
        self._gone = asyncio.Event()
        self.trouble = ""
        """Why it is gone."""
        self.survivors: list[int] = []

    @property
    def alive(self) -> bool:
        return not self._gone.is_set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def busy(self) -> bool:
        """True while something of a command runs."""
        return bool(self._commands)

    def run(
        self,
        arguments: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        output: int,
        command: KeptCommand,
    ) -> str:
        """Starts a command; its name. Raises ValueError where it holds what no command can hold."""
        variables = (f"{name}={value}" for name, value in environment.items())
        order = _as_file([cwd, str(len(arguments)), *arguments, *variables])
        self._started += 1
        name = str(self._started)
        self._commands[name] = command
        self._send(f"run {name}", order, os.dup(output))
        return name

    def end(self, name: str, grace: float) -> None:
        self._send(f"end {name} {grace}")

    def kill(self, name: str) -> None:
        self._send(f"kill {name}")

    async def close(self, grace: float) -> list[int]:
        """Ends all that it runs, and itself; who is left. Cancelled: all is killed at once."""
        if self.alive:
            self._send(f"close {grace}")
        try:
            await self._gone.wait()
        except asyncio.CancelledError:
            self._lose("it was closed")
            raise
        return self.survivors

    # --- what goes to it ----------------------------------------------------------------------------------

    def _send(self, line: str, *descriptors: int) -> None:
        self._unsent.append((line.encode() + b"\n", list(descriptors)))
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self.alive:
            line, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._link, [line], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._link.fileno(), self._flush)
                return
            except OSError:
                self._lose(self._last_words())
                return
            self._unsent.pop(0)
            for descriptor in descriptors:
                os.close(descriptor)
        if self.alive:
            self._loop.remove_writer(self._link.fileno())

    # --- what comes from it -------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = self._link.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(self._last_words())
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, *words = line.decode(errors="replace").split()
            self._hear(verb, words)

    def _hear(self, verb: str, words: list[str]) -> None:
        if verb == "closed":
            self.survivors = [int(word) for word in words]
        command = self._commands.get(words[0]) if words else None
        if command is None:
            return
        match verb:
            case "exit":
                command.on_exit(int(words[1]))
            case "failed":
                command.on_refusal(int(words[1]))
            case "limit":
                command.on_limit(words[1], int(words[2]))
            case "ended":
                command.on_end([int(word) for word in words[1:]])
            case "over":
                del self._commands[words[0]]
                command.on_over()
            case _:
                pass

    def _lose(self, trouble: str) -> None:
        """It is gone, or has to be."""
        if not self.alive:
            return
        self.trouble = trouble
        self._gone.set()
        self._loop.remove_reader(self._link.fileno())
        self._loop.remove_writer(self._link.fileno())
        self._link.close()
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        threading.Thread(target=self._reap, daemon=True).start()
        for command in list(self._commands.values()):
            command.on_loss(trouble)
        self._commands.clear()

    def _last_words(self) -> str:
        """What it, or the sandbox around it, said before it went."""
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        with suppress(OSError):
            said = os.read(self._process.stderr.fileno(), _MAX_TROUBLE).decode(errors="replace").strip()
            if said:
                return said.splitlines()[-1]
        return ""

    def _reap(self) -> None:
        with suppress(OSError):
            if self._process.stderr is not None:
                self._process.stderr.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def _as_file(words: Sequence[str]) -> int:
    """A descriptor from which `words` can be read, each ended by NUL but the last."""
    if any("\0" in word for word in words):
        raise ValueError("embedded null byte")
    data = b"\0".join(map(os.fsencode, words))
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("order")
    else:
        descriptor, path = tempfile.mkstemp()
        Path(path).unlink()
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
