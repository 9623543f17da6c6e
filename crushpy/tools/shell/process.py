"""Runs one shell command: a fixed shell, no terminal, bounded output, no process left at the end."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.messages import Terminal
from crushpy.security.programs import find_program
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import Output
from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    from crushpy.sandbox.supervisor_handle import Supervisor

END_GRACE_S = 2.0
"""How long a process may take to terminate before it is killed, and a killed shell to exit."""
_DRAIN_GRACE_S = 0.2
"""How long after the shell's exit its children may keep the output open."""
_CHUNK_BYTES = 65_536

_LIMIT_MESSAGES = {
    "processes": "it and what it started were killed: more than {most:,} processes (sandbox.processes)",
    "memory": "it and what it started were killed: more than {megabytes:,} MB of memory (sandbox.memory_mb)",
}
_LOST_MESSAGE = (
    "the process that ran it is gone{why}; all that it had started, including background jobs, has ended. "
    "The next command gets a new one"
)
_NONINTERACTIVE = {
    "CRUSHPY": "1",
    "TERM": "dumb",
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER"), "cat"),
    **dict.fromkeys(("EDITOR", "VISUAL", "GIT_EDITOR"), "true"),
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


class Process:
    """One command and everything it starts. It runs from the constructor on."""

    def __init__(
        self,
        supervisor: "Supervisor",
        command: str,
        cwd: Path,
        output: Output,
        environment: Mapping[str, str],
        streams: tuple[Output, int] | None = None,
    ) -> None:
        """`streams`: for its errors if not in `output`, and the descriptor of what it reads."""
        self.command = command
        self.output = output
        self.drained = asyncio.Event()
        """No process has its output open."""
        self._cwd = cwd
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        if not cwd.is_dir():
            raise ToolError(missing_folder(cwd))
        outputs = [output, streams[0]] if streams else [output]
        pipes = [os.pipe() for _ in outputs]
        given = [*(writing for _, writing in pipes), *(streams[1:] if streams else ())]
        words = [*shell(), "-c", "--", command]
        try:
            self._run = supervisor.run(words, str(cwd), _shell_environment(environment), given)
        except ValueError:
            for reading, _ in pipes:
                os.close(reading)
            raise ToolError(
                "The command holds a character that no command can hold: NUL or half a surrogate pair."
            ) from None
        finally:
            for _, writing in pipes:
                os.close(writing)
        self.exited = self._run.exited
        """The shell has exited."""
        self._pipes = {reading: output for (reading, _), output in zip(pipes, outputs, strict=True)}
        for reading in self._pipes:
            os.set_blocking(reading, False)
            self._loop.add_reader(reading, self._read, reading)

    @property
    def exit_code(self) -> int | None:
        """None while the shell runs, and if a signal ended it."""
        status = self._run.status
        return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None

    @property
    def signal_name(self) -> str:
        """The signal that ended the shell; empty if none did."""
        if self._run.status is None or not os.WIFSIGNALED(self._run.status):
            return ""
        number = os.WTERMSIG(self._run.status)
        with suppress(ValueError):  # real-time signals have no names
            return signal.Signals(number).name
        return f"signal {number}"

    @property
    def trouble(self) -> str:
        """What ended it from outside, such as a limit, as a message."""
        if self._run.lost is not None:
            return _LOST_MESSAGE.format(why=f": {self._run.lost}" if self._run.lost else "")
        if self._run.limit is not None:
            what, most = self._run.limit
            return _LIMIT_MESSAGES[what].format(most=most, megabytes=most // 1_000_000)
        return "" if self._run.refused is None else _start_error(self._run.refused, self._cwd)

    @property
    def seconds(self) -> float:
        """How long the shell has run."""
        return (self._run.stopped_at or time.monotonic()) - self._run.started_at

    @property
    def running(self) -> bool:
        """True while the shell runs, or a process it started has the output open."""
        return not (self.exited.is_set() and self.drained.is_set())

    def display(self, text: str, note: str, lines: int = 0) -> Terminal:
        """What a person sees of it, with `text` of its output."""
        return Terminal(self.command, text, self.exit_code, round(self.seconds, 3), note, lines)

    async def finish(self, limit: float) -> bool:
        """Waits for the shell's exit; False if it did not exit within `limit` seconds.

        Background processes do not delay this: `running` tells whether there are any. Raises
        `ToolError` if it could not be started.
        """
        if not await _wait_for(limit, self.exited):
            return False
        await _wait_for(_DRAIN_GRACE_S, self.drained)
        if self._run.refused is not None:
            raise ToolError(self.trouble)
        return True

    async def finish_or_kill(self, limit: float) -> tuple[bool, list[int]]:
        """As `finish`, but a command that takes longer is killed, and so is one that is cancelled. Also
        returns the processes that could not be ended."""
        in_time, survivors = False, list[int]()
        try:
            in_time = await self.finish(limit)
        finally:
            if not in_time:
                survivors = await self.kill()
        return in_time, survivors

    async def wait_for_children(self) -> None:
        """Waits briefly until no process of the command is left; some may go on in the background."""
        await _wait_for(_DRAIN_GRACE_S, self._run.over)

    async def wait(self, limit: float) -> None:
        """Waits up to `limit` seconds until the shell and all processes with its output have ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self.exited.wait()
                await self.drained.wait()

    async def kill(self) -> list[int]:
        """Ends the command and everything it started; returns the processes that could not be ended.

        Cancelling this skips the grace period: all are killed at once.
        """
        if self._run.over.is_set():
            self._close()
            return []
        self._run.ended.clear()
        self._supervisor.end(self._run, END_GRACE_S)
        ending = spawn(self._wait_for_end())
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._supervisor.kill(self._run)
            raise

    async def _wait_for_end(self) -> list[int]:
        await self._run.ended.wait()
        await _wait_for(END_GRACE_S, self.exited)
        await _wait_for(_DRAIN_GRACE_S, self.drained)
        self._close()
        return self._run.survivors

    # --- its output ---------------------------------------------------------------------------------------

    def _read(self, pipe: int) -> None:
        try:
            data = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self._pipes[pipe].feed(data)
        else:
            self._close(pipe)

    def _close(self, *pipes: int) -> None:
        """Closes these pipes, by default all."""
        for pipe in pipes or tuple(self._pipes):
            self._loop.remove_reader(pipe)
            os.close(pipe)
            self._pipes.pop(pipe).close()
        if not self._pipes:
            self.drained.set()


def _shell_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {**environment, **_NONINTERACTIVE}
    variables.pop("BASH_ENV", None)  # a start-up file like those that --norc turns off
    # Keeps git from treating a folder that looks like a bare repository as one.
    count = variables.get("GIT_CONFIG_COUNT", "")
    index = int(count) if count.isdecimal() else 0
    bare = {f"GIT_CONFIG_KEY_{index}": "safe.bareRepository", f"GIT_CONFIG_VALUE_{index}": "explicit"}
    return {**variables, **bare, "GIT_CONFIG_COUNT": str(index + 1)}


def cannot_kill(survivors: list[int]) -> str:
    """A message about the processes that `kill` could not end; empty if there are none."""
    numbers = ", ".join(str(pid) for pid in survivors)
    return f"these processes could not be killed: {numbers}" if numbers else ""


async def _wait_for(seconds: float, event: asyncio.Event) -> bool:
    """Waits for `event`; False on timeout."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def missing_folder(cwd: Path) -> str:
    return f"The working directory {cwd} no longer exists. No command runs until it is created again."


def _start_error(error: int, cwd: Path) -> str:
    if not cwd.is_dir():
        return missing_folder(cwd)
    if error == errno.E2BIG:
        return "The command is too long for the system. Write it to a file and run that."
    return f"The command could not be started in {cwd}: {os.strerror(error)}."


@cache
def shell() -> tuple[str, ...]:
    """The same shell whatever the user's login shell is, without start-up files."""
    standard = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), None)
    bash = standard or find_program("bash")
    return (bash, "--noprofile", "--norc") if bash else (find_program("sh") or "/bin/sh",)
