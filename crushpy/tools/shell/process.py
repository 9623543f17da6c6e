"""Runs one shell command: a pinned shell, nobody to ask, bounded output, nothing left when it is ended."""

import asyncio
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from crushpy.start_soon import start_soon
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.process_tree import MARK_VARIABLE, Family

END_GRACE = 2.0
"""How long a process may take to end before it is killed, and a killed shell to be gone."""
_DRAIN_GRACE = 0.2
"""How long after the shell's end its children may take to let go of the output."""
_CHUNK = 65_536

_NOBODY_ANSWERS = {
    "CRUSHPY": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


class Process:
    """One command, running from the moment it is made, and all that it starts."""

    def __init__(
        self, command: str, cwd: Path, output: Output, mark: str, environment: Mapping[str, str]
    ) -> None:
        self.command = command
        self.output = output
        self.exited = asyncio.Event()
        """The shell is gone."""
        self.drained = asyncio.Event()
        """Nobody holds its output any more."""
        self._started = time.monotonic()
        self._ended = 0.0
        self._shell = _start(command, cwd, _for_commands(environment, mark))
        self._family = Family(mark, self._shell.pid)
        self._loop = asyncio.get_running_loop()
        self._read_as_it_comes()
        self._watch()

    @property
    def exit_code(self) -> int | None:
        """None while the shell runs, and where a signal ended it."""
        code = self._shell.returncode if self.exited.is_set() else None
        return code if code is not None and code >= 0 else None

    @property
    def signal_name(self) -> str:
        """Which signal ended the shell; empty where none did."""
        code = self._shell.returncode if self.exited.is_set() else 0
        return _name(-code) if code < 0 else ""

    @property
    def seconds(self) -> float:
        """How long the shell has run."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def running(self) -> bool:
        """True while the shell runs, or something it started still holds the output."""
        return not (self.exited.is_set() and self.drained.is_set())

    async def finish(self, limit: float) -> bool:
        """Waits for the shell's end; False where it did not come within `limit` seconds.

        What it left in the background does not keep us: `running` tells whether something did stay.
        """
        if not await _within(limit, self.exited):
            return False
        await _within(_DRAIN_GRACE, self.drained)
        return True

    async def wait(self, limit: float) -> None:
        """Waits up to `limit` seconds until neither the shell nor anything with its output runs."""
        try:
            async with asyncio.timeout(limit):
                await self.exited.wait()
                await self.drained.wait()
        except TimeoutError:
            pass

    async def kill(self) -> list[int]:
        """Ends the command and all that it started; gives those that could not be ended.

        Cancelling this only makes it less patient: all are killed at once.
        """
        ending = start_soon(self._end())
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._family.signal(signal.SIGKILL)
            raise

    async def _end(self) -> list[int]:
        survivors = await self._family.end(END_GRACE)
        await _within(END_GRACE, self.exited)
        await _within(_DRAIN_GRACE, self.drained)
        self._close()
        return survivors

    # --- its output ---------------------------------------------------------------------------------------

    def _read_as_it_comes(self) -> None:
        assert self._shell.stdout is not None
        self._pipe = self._shell.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._loop.add_reader(self._pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            self.output.feed(data)
        else:
            self._close()

    def _close(self) -> None:
        if self._pipe.closed:
            return
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self.output.close()
        self.drained.set()

    # --- its end ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Notices the shell's end: through a file descriptor where the system has it, else with a thread."""
        try:
            descriptor = os.pidfd_open(self._shell.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
            return

        def ended() -> None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            self._reap()

        self._loop.add_reader(descriptor, ended)

    def _wait_in_thread(self) -> None:
        self._shell.wait()
        try:
            self._loop.call_soon_threadsafe(self._reap)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _reap(self) -> None:
        self._shell.wait()
        self._family.leader_reaped = True
        self._ended = time.monotonic()
        self.exited.set()


def cannot_kill(survivors: list[int]) -> str:
    """Those that `kill` could not end, in words; empty where there are none."""
    numbers = ", ".join(str(pid) for pid in survivors)
    return f"these processes could not be killed: {numbers}" if numbers else ""


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Waits for `event`; False where it did not come in time."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _start(command: str, cwd: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [*shell(), "-c", "--", command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(_why_not(error, cwd)) from None
    except ValueError:
        raise ToolError(
            "The command holds a character that no command can hold: NUL or half a surrogate pair."
        ) from None


def _for_commands(given: Mapping[str, str], mark: str) -> dict[str, str]:
    environment = {**given, **_NOBODY_ANSWERS}
    # Inside a command of another crushpy, that one must find our children too.
    environment[MARK_VARIABLE] = os.environ.get(MARK_VARIABLE, "") + mark
    environment.pop("BASH_ENV", None)  # a start-up file like those that --norc turns off
    return environment | _git_settings(environment.get("GIT_CONFIG_COUNT", ""))


def _git_settings(count: str) -> dict[str, str]:
    """A folder of text files that looks like a repository gives git no orders."""
    place = int(count) if count.isdecimal() else 0
    return {
        "GIT_CONFIG_COUNT": str(place + 1),
        f"GIT_CONFIG_KEY_{place}": "safe.bareRepository",
        f"GIT_CONFIG_VALUE_{place}": "explicit",
    }


def _why_not(error: OSError, cwd: Path) -> str:
    if not cwd.is_dir():
        return f"The working directory {cwd} does not exist any more. Nothing runs until it is there again."
    if error.errno == errno.E2BIG:
        return "The command is too long for the system. Write it to a file and run that."
    return f"The command could not be started in {cwd}: {error.strerror}."


@cache
def shell() -> tuple[str, ...]:
    """Always the same shell, whatever the user's login shell is, and without start-up files."""
    for path in ("/bin/bash", "/usr/bin/bash"):
        if os.access(path, os.X_OK):
            return (path, "--noprofile", "--norc")
    return ("sh",)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no names
