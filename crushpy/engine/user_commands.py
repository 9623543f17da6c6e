"""The user's own commands: run at once, bounded, and ended with the app. The agent does not see them."""

import asyncio
from pathlib import Path
from typing import Literal, Protocol

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Terminal
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import LiveOutput, Output
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.shell.process import Process, cannot_kill
from crushpy.tools.truncate import HeadTail
from crushpy.util.spawn import spawn

TIME_LIMIT = 600.0
"""Seconds after which one is ended."""
LIVE_CHARS = 10_000
"""Of its output, while it runs: head and tail."""

End = Literal["done", "failed", "interrupted"]


class Watcher(Protocol):
    """Who is told of one command."""

    def prints(self, text: str) -> None:
        """All that it printed so far, bounded."""
        ...

    def ended(self, display: Terminal, end: End) -> None: ...


class OwnCommands:
    """Those that run now, and what any of them left in the background. Nothing of them is stored."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._jobs = Jobs(whole_environment=True)  # what the user types is the user's own
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        return bool(self._running)

    def run(self, command: str, watcher: Watcher) -> None:
        """Starts a command. Raises CrushpyError where it cannot be started."""
        printed = HeadTail(LIVE_CHARS)

        def heard(text: str) -> None:
            printed.add(text)
            watcher.prints(printed.text().text)

        try:
            process = self._jobs.run(command, self._cwd, Output(None, LiveOutput(heard)))
        except ToolError as error:
            raise CrushpyError(str(error)) from error
        task = spawn(_watch(process, command, watcher))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> bool:
        """Ends those that run, and at once where they were told before; False where none does."""
        for task in self._running:
            # Not at once: a task cancelled before its first step would not end its command.
            asyncio.get_running_loop().call_soon(task.cancel)
        return self.running

    async def close(self) -> None:
        """Ends everything that any of them started."""
        self.stop()
        await asyncio.gather(self._jobs.close(), *self._running)


async def _watch(process: Process, command: str, watcher: Watcher) -> None:
    """Tells how a command ends, or ends it: when its time is over, or when this is cancelled."""
    note = ""
    end: End = "failed"
    try:
        if not await process.finish(TIME_LIMIT):
            note = f"ended after {TIME_LIMIT:g} s"
    except asyncio.CancelledError:
        note, end = "stopped", "interrupted"
    if note:
        note = "; ".join(filter(None, [note, await _end(process)]))
    elif process.running:
        process.output.hide()
        note = "what it started goes on in the background, until you leave"
    elif process.signal_name:
        note = f"ended by {process.signal_name}"
    if process.exit_code == 0 and end == "failed":
        end = "done"
    output = process.output.take().text
    watcher.ended(Terminal(command, output, process.exit_code, round(process.seconds, 3), note), end)


async def _end(process: Process) -> str:
    """Kills a command; who could not be killed, in words."""
    try:
        return cannot_kill(await process.kill())
    except asyncio.CancelledError:  # asked again: all of it was killed at once
        return ""
