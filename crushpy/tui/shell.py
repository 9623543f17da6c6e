"""Lines that start with `!`: the user's own commands, run at once and shown; the agent does not see them."""

import asyncio
from pathlib import Path
from typing import Protocol

from crushpy.ids import new_id
from crushpy.messages import Terminal
from crushpy.tools.base import ToolError
from crushpy.tools.jobs import Jobs
from crushpy.tools.live import Live
from crushpy.tools.output import Output
from crushpy.tools.process import Process, cannot_kill
from crushpy.tools.truncate import HeadTail
from crushpy.tui.items import OWN_COMMAND, ErrorItem, Item, ToolItem, ToolState

TIME_LIMIT = 600.0
"""Seconds after which one is ended."""
LIVE_CHARS = 10_000
"""Of its output, while it runs: head and tail."""


class View(Protocol):
    """What is needed of a transcript."""

    def add(self, item: Item) -> int: ...
    def replace(self, key: int, item: Item) -> None: ...
    def item(self, key: int) -> Item | None: ...


class OwnCommands:
    """Those that run now, and what any of them left in the background. Nothing of them is stored."""

    def __init__(self, view: View, cwd: Path) -> None:
        self._view = view
        self._cwd = cwd
        self._jobs = Jobs()
        self._running: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        return bool(self._running)

    def run(self, command: str) -> None:
        """Starts a command, or shows why it cannot be started."""
        block = _Block(self._view, command)
        output = Output(None, Live(block.prints))
        try:
            process = Process(command, self._cwd, output, self._jobs.new_mark())
        except ToolError as error:
            self._view.add(ErrorItem(str(error)))
            return
        block.show()
        task = asyncio.create_task(_watch(process, block))
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


async def _watch(process: Process, block: "_Block") -> None:
    """Shows how a command ends, or ends it: when its time is over, or when this is cancelled."""
    note = ""
    state: ToolState = "failed"
    try:
        if not await process.finish(TIME_LIMIT):
            note = f"ended after {TIME_LIMIT:g} s"
    except asyncio.CancelledError:
        note, state = "stopped", "interrupted"
    if note:
        note = "; ".join(filter(None, [note, await _end(process)]))
    elif process.running:
        process.output.hide()
        note = "what it started goes on in the background, until you leave"
    elif process.signal_name:
        note = f"ended by {process.signal_name}"
    if process.exit_code == 0 and state == "failed":
        state = "done"
    block.ended(process, state, note)


async def _end(process: Process) -> str:
    """Kills a command; who could not be killed, in words."""
    try:
        return cannot_kill(await process.kill())
    except asyncio.CancelledError:  # asked again: all of it was killed at once
        return ""


class _Block:
    """One command in the transcript."""

    def __init__(self, view: View, command: str) -> None:
        self._view = view
        self._command = command
        self._printed = HeadTail(LIVE_CHARS)
        self._item = ToolItem(new_id(), OWN_COMMAND, command, "running")
        self._key: int | None = None

    def show(self) -> None:
        if self._key is None or self._view.item(self._key) is None:  # or another session is shown now
            self._key = self._view.add(self._item)
        else:
            self._view.replace(self._key, self._item)

    def prints(self, text: str) -> None:
        self._printed.add(text)
        self._item = ToolItem(
            self._item.id, OWN_COMMAND, self._command, "running", output=self._printed.text().text
        )
        self.show()

    def ended(self, process: Process, state: ToolState, note: str) -> None:
        output = process.output.take().text
        display = Terminal(self._command, output, process.exit_code, round(process.seconds, 3), note)
        self._item = ToolItem(self._item.id, OWN_COMMAND, self._command, state, display)
        self.show()
