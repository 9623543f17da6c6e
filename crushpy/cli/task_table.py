"""Shows the progress of a task list: a table on a terminal, else lines."""

import shutil
import sys
import time
from contextlib import suppress
from typing import TextIO

from crushpy.core.events import ListedTaskChanged
from crushpy.core.messages import counted
from crushpy.engine.agents.task_reports import MARKS, money, table_lines, unchanged
from crushpy.security.sanitize import one_line

REDRAW_INTERVAL_S = 0.1
"""While no state has changed."""


class LiveLines:
    """Lines that are redrawn in place, below everything else on the terminal. `erase` them before writing
    there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn_lines = 0

    def show(self, lines: list[str]) -> None:
        surplus = self._drawn_lines - len(lines)
        # Line by line: some terminals keep a copy of a cleared screen.
        cursor_up = f"\x1b[{self._drawn_lines}A\r" if self._drawn_lines else ""
        self._write(cursor_up + "".join(f"{line}\x1b[K\n" for line in [*lines, *[""] * surplus]))
        if surplus > 0:
            self._write(f"\x1b[{surplus}A")
        self._drawn_lines = len(lines)

    def erase(self) -> None:
        self.show([])

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the display is optional
            self._stream.write(text)
            self._stream.flush()


class TaskTable(LiveLines):
    """The tasks of a list, on stderr."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._tasks: dict[str, ListedTaskChanged] = {}
        self._drawn_at = 0.0

    def __call__(self, event: ListedTaskChanged) -> None:
        previous = self._tasks.get(event.name)
        self._tasks[event.name] = event
        is_unchanged = previous is not None and previous.state == event.state
        is_incomplete = len(self._tasks) < event.of
        if not is_incomplete and (not is_unchanged or time.monotonic() - self._drawn_at >= REDRAW_INTERVAL_S):
            self.draw()

    def draw(self) -> None:
        if not self._tasks:
            return
        size = shutil.get_terminal_size()
        self.show(table_lines(list(self._tasks.values()), size.columns - 1, max(3, size.lines - 2)))
        self._drawn_at = time.monotonic()


def task_line(event: ListedTaskChanged, previous: str | None) -> str:
    """A line for a task that started or ended; empty if its state has not changed."""
    if event.state in (previous, "waiting"):
        return ""
    label = f"[{event.number}/{event.of}] {event.name}"
    if event.state == "running":
        return f"· {label} started"
    if previous is None:
        return f"✓ {label} was already done"
    return f"{MARKS.get(event.state, '✗')} {label}: {_describe_end(event)}"


def _describe_end(event: ListedTaskChanged) -> str:
    figures = f"{counted(event.step, 'step')}, {event.tokens:,} tokens, {money(event.cost)}"
    words = [event.state, figures, f"branch {event.branch}" if event.branch else unchanged(event)]
    text = ", ".join(word for word in words if word)
    return f"{text}: {one_line(event.error)}" if event.error else text
