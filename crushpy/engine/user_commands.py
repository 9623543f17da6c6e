"""Shell commands of the user, also for the status bar: bounded, ended with the app. The agent does not see
them."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Terminal
from crushpy.security.sanitize import one_line
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import LiveOutput, Output
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.shell.process import Process, cannot_kill
from crushpy.tools.truncate import HeadTail
from crushpy.util.spawn import spawn_among

COMMAND_TIMEOUT_S = 600.0
MAX_LINE_CHARS = 2_000
LIVE_CHARS = 10_000
"""Head and tail of the output, while it runs."""

End = Literal["done", "failed", "interrupted"]


Ended = Callable[[Terminal, End], None]


class OwnCommands:
    """The running commands and their background processes. Nothing is stored."""

    def __init__(self, cwd: str) -> None:
        self._cwd = Path(cwd)
        self._jobs = Jobs(whole_environment=True)  # commands of the user get the whole environment
        self._warm = False
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        return bool(self._running)

    def run(self, command: str, prints: Callable[[str], None], ended: Ended) -> None:
        """Starts a command. Raises CrushpyError if that fails. `prints` gets the output so far, bounded."""
        printed = HeadTail(LIVE_CHARS)

        def heard(text: str) -> None:
            printed.add(text)
            prints(printed.text().text)

        try:
            process = self._jobs.run(command, self._cwd, Output(None, LiveOutput(heard)))
        except ToolError as error:
            raise CrushpyError(str(error)) from error
        spawn_among(self._running, _watch(process, command, ended))

    async def first_line(self, command: str, cwd: Path, given: bytes, limit: float) -> tuple[str, str]:
        """The first line that a command prints which reads `given`, or why there is none. `limit`: in
        seconds; then it is killed, with all that it started."""
        output = Output(None, limit=MAX_LINE_CHARS)
        try:
            if not self._warm:
                self._warm = True  # the time of the launcher's start does not count
                await self._jobs.run(":", Path("/"), Output(None)).finish(COMMAND_TIMEOUT_S)
            with tempfile.TemporaryFile() as file:
                file.write(given)
                file.seek(0)
                process = self._jobs.run(command, cwd, output, streams=(Output(None), file.fileno()))
        except ToolError as error:
            return "", one_line(str(error))
        try:
            in_time = await process.finish(limit)
        finally:
            await process.kill()
        if not in_time:
            return "", f"took more than {limit:g} s"
        code = process.exit_code
        line = one_line(output.take().text.split("\n")[0])
        return line, f"exit code {code}" if code else ""

    def stop(self) -> bool:
        """Ends the running commands; a second call kills them at once. False if none runs."""
        for task in self._running:
            # Not at once: a task cancelled before its first step would not end its command.
            asyncio.get_running_loop().call_soon(task.cancel)
        return self.running

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(self._jobs.close(), *self._running)


async def _watch(process: Process, command: str, ended: Ended) -> None:
    """Reports how a command ends, or ends it on timeout or cancellation."""
    note = ""
    end: End = "failed"
    try:
        if not await process.finish(COMMAND_TIMEOUT_S):
            note = f"ended after {COMMAND_TIMEOUT_S:g} s"
    except asyncio.CancelledError:
        note, end = "stopped", "interrupted"
    if note:
        with suppress(asyncio.CancelledError):  # second request: everything was killed at once
            note = "; ".join(filter(None, [note, cannot_kill(await process.kill())]))
    elif process.running:
        process.output.hide()
        note = "its background processes run until you quit"
    elif process.signal_name:
        note = f"ended by {process.signal_name}"
    if process.exit_code == 0 and end == "failed":
        end = "done"
    output = process.output.take().text
    ended(Terminal(command, output, process.exit_code, round(process.seconds, 3), note), end)
