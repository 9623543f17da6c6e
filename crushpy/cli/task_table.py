"""How the tasks of a list get on, for people: a table on a terminal, else a line now and then."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from unicodedata import combining, east_asian_width

from crushpy.events import ListedTaskChanged
from crushpy.messages import counted
from crushpy.sanitize import clean, one_line

EVERY = 0.1
"""Seconds between two drawings, where no state has changed."""
_MARKS = {"waiting": " ", "running": "▸", "done": "✓", "skipped": "-"}
_ORDER = ("running", "failed", "limit", "interrupted", "skipped", "waiting", "done")
"""Who is shown first where not all fit."""
_NAME, _STATE = 24, 11


def table_lines(tasks: Sequence[ListedTaskChanged], width: int, height: int) -> list[str]:
    """The table as text of at most `height` lines, none wider than `width`."""
    room = max(0, height - 2)
    shown = sorted(tasks, key=lambda task: _ORDER.index(task.state))[:room] if len(tasks) > room else tasks
    names = min(_NAME, max((_width(task.name) for task in shown), default=4))
    head = f"  {'task':<{names}}  {'state':<{_STATE}} {'step':>4} {'tokens':>9} {'cost':>8}  last"
    rows = [_row(task, names) for task in sorted(shown, key=lambda task: task.number)]
    lines = [head, *rows, _sum(tasks, len(tasks) - len(shown))]
    return [_cut(line, width) for line in lines[-height:]]


def _row(task: ListedTaskChanged, names: int) -> str:
    name = _cut(task.name, names)
    last = one_line(clean(task.error or task.branch or task.line))
    return (
        f"{_MARKS.get(task.state, '✗')} {name}{' ' * (names - _width(name))}  {task.state:<{_STATE}} "
        f"{task.step:>4} {task.tokens:>9,} {_money(task.cost):>8}  {last}"
    )


def _sum(tasks: Iterable[ListedTaskChanged], unseen: int) -> str:
    tasks = list(tasks)
    states = {state: sum(task.state == state for task in tasks) for state in _ORDER}
    words = [f"{many} {state}" for state, many in states.items() if many]
    tokens = sum(task.tokens for task in tasks)
    words += [f"{tokens:,} tokens", _money(sum(task.cost for task in tasks))]
    return f"  {counted(len(tasks), 'task')}: {', '.join(words)}" + (
        f"; {unseen} not shown" if unseen else ""
    )


def _money(cost: float) -> str:
    return f"${cost:.2f}"


def _width(text: str) -> int:
    """How many columns a terminal gives it."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while text and _width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


class TaskTable:
    """Drawn over itself, below all else on the terminal. `erase` it before anything is written there."""

    def __init__(self) -> None:
        self._tasks: dict[str, ListedTaskChanged] = {}
        self._drawn = 0
        self._at = 0.0

    def __call__(self, event: ListedTaskChanged) -> None:
        before = self._tasks.get(event.name)
        self._tasks[event.name] = event
        same = before is not None and before.state == event.state
        beginning = len(self._tasks) < event.of
        if not beginning and (not same or time.monotonic() - self._at >= EVERY):
            self.draw()

    def draw(self) -> None:
        if not self._tasks:
            return
        size = shutil.get_terminal_size()
        lines = table_lines(list(self._tasks.values()), size.columns - 1, max(3, size.lines - 2))
        self._write(self._back() + "".join(f"{line}\x1b[K\n" for line in lines))
        self._drawn = len(lines)
        self._at = time.monotonic()

    def erase(self) -> None:
        self._write(self._back())
        self._drawn = 0

    def _back(self) -> str:
        """To where the table begins, with nothing below."""
        return f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

    def _write(self, text: str) -> None:
        with suppress(OSError):  # only the answer counts
            sys.stderr.write(text)
            sys.stderr.flush()


class TaskLines:
    """A line when a task begins, and one when it has come to rest. `say` takes whether it must be said."""

    def __init__(self, say: Callable[[str, bool], None]) -> None:
        self._say = say
        self._states: dict[str, str] = {}

    def __call__(self, event: ListedTaskChanged) -> None:
        before = self._states.get(event.name)
        self._states[event.name] = event.state
        if event.state in (before, "waiting"):
            return
        what = f"[{event.number}/{event.of}] {event.name}"
        if event.state == "running":
            self._say(f"· {what} begins", False)
        elif before is None:
            self._say(f"✓ {what} was done before", False)
        else:
            self._say(f"{_MARKS.get(event.state, '✗')} {what}: {_ending(event)}", event.state == "failed")

    def draw(self) -> None:
        pass

    def erase(self) -> None:
        pass


def _ending(event: ListedTaskChanged) -> str:
    figures = f"{counted(event.step, 'step')}, {event.tokens:,} tokens, {_money(event.cost)}"
    words = [event.state, figures, f"branch {event.branch}" if event.branch else ""]
    said = ", ".join(word for word in words if word)
    return f"{said}: {one_line(event.error)}" if event.error else said
