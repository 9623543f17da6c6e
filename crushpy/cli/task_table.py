"""Shows the progress of a task list: a table on a terminal, else lines."""

import shutil
import sys
import time
from contextlib import suppress

from crushpy.core.events import ListedTaskChanged
from crushpy.core.messages import counted
from crushpy.engine.agents.task_reports import MARKS, money, table_lines, unchanged
from crushpy.security.sanitize import one_line

REDRAW_INTERVAL_S = 0.1
"""While no state has changed."""


class TaskTable:
    """Redrawn in place, below everything else on the terminal. `erase` it before writing there."""

    def __init__(self) -> None:
        self._tasks: dict[str, ListedTaskChanged] = {}
        self._drawn_lines = 0
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
        lines = table_lines(list(self._tasks.values()), size.columns - 1, max(3, size.lines - 2))
        surplus = self._drawn_lines - len(lines)
        self._overwrite_lines([*lines, *[""] * surplus])
        if surplus > 0:
            self._write(f"\x1b[{surplus}A")
        self._drawn_lines = len(lines)
        self._drawn_at = time.monotonic()

    def erase(self) -> None:
        if self._drawn_lines:
            self._overwrite_lines([""] * self._drawn_lines)
            self._write(f"\x1b[{self._drawn_lines}A")
        self._drawn_lines = 0

    def _overwrite_lines(self, lines: list[str]) -> None:
        """Overwrites line by line: some terminals keep a copy of a cleared screen."""
        cursor_up = f"\x1b[{self._drawn_lines}A\r" if self._drawn_lines else ""
        self._write(cursor_up + "".join(f"{line}\x1b[K\n" for line in lines))

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the display is optional
            sys.stderr.write(text)
            sys.stderr.flush()


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
