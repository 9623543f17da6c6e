"""Which tasks of a list may start now, and what becomes of the others. Pure: knows no model and no clock.

Tasks start in the order of the list. One that works alone waits until nothing runs, and nothing that comes
after it starts meanwhile: what follows it in the list finds what it did.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from crushpy.core.messages import Data

TaskState = Literal["waiting", "running", "done", "failed", "limit", "interrupted", "skipped"]
"""skipped: a task that it needs did not come to its end."""
STATES: tuple[TaskState, ...] = get_args(TaskState)
ENDED_BADLY: tuple[TaskState, ...] = ("failed", "limit", "interrupted", "skipped")


class PlannedTask(Data, frozen=True):
    """What the schedule needs to know of a task."""

    name: str
    needs: tuple[str, ...] = ()
    alone: bool = True
    """It may change what others work on."""


class TaskSchedule:
    """The states of all tasks of one list. `parallel`: how many may run at a time."""

    def __init__(self, tasks: Sequence[PlannedTask], parallel: int = 1, done: Iterable[str] = ()) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._parallel = max(1, parallel)
        self._stopped = False
        finished = set(done)
        self._states: dict[str, TaskState] = {
            task.name: "done" if task.name in finished else "waiting" for task in tasks
        }

    @property
    def states(self) -> Mapping[str, TaskState]:
        return self._states

    def of(self, state: TaskState) -> list[str]:
        """The tasks in a state, in the order of the list."""
        return [name for name, found in self._states.items() if found == state]

    @property
    def over(self) -> bool:
        """Nothing runs, and nothing will."""
        return not self.of("running") and not self.startable()

    def startable(self) -> list[str]:
        """The tasks that may start now, all of them side by side, in the order of the list."""
        running = [self._tasks[name] for name in self.of("running")]
        if self._stopped or any(task.alone for task in running):
            return []
        found: list[str] = []
        for name in self.of("waiting"):
            task = self._tasks[name]
            if len(running) + len(found) >= self._parallel:
                break
            if any(self._states[need] != "done" for need in task.needs):
                continue
            if task.alone:
                return found if running or found else [name]
            found.append(name)
        return found

    def start(self, name: str) -> None:
        if name not in self.startable():
            raise ValueError(f"{name} may not start now")
        self._states[name] = "running"

    def end(self, name: str, state: TaskState) -> list[str]:
        """A running task has come to rest. The tasks that can never start because of that, in order."""
        if self._states[name] != "running":
            raise ValueError(f"{name} does not run")
        self._states[name] = state
        return [] if state in ("done", "interrupted") else self._skip()

    def stop(self) -> None:
        """Nothing starts any more: a limit of the whole list was reached, or somebody interrupted it."""
        self._stopped = True

    def _skip(self) -> list[str]:
        skipped: list[str] = []
        grown = True
        while grown:  # needs may point forwards in the list
            grown = False
            for name in self.of("waiting"):
                if any(self._states[need] in ENDED_BADLY for need in self._tasks[name].needs):
                    self._states[name] = "skipped"
                    skipped.append(name)
                    grown = True
        return sorted(skipped, key=list(self._tasks).index)


def problem_with_needs(tasks: Sequence[PlannedTask]) -> str:
    """Why these tasks can never all be done, naming the one that is wrong; empty where they can."""
    known: dict[str, PlannedTask] = {}
    spelled: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        # Branches are files on some machines, and there `Docs` is `docs`.
        if (first := spelled.setdefault(task.name.casefold(), number)) != number:
            return f"task {number} has the name {task.name!r}, which task {first} has already"
        known[task.name] = task
    for number, task in enumerate(tasks, 1):
        for need in task.needs:
            if need == task.name:
                return f"task {number} ({task.name}) needs itself"
            if need not in known:
                return f"task {number} ({task.name}) needs {need!r}, and no task has that name"
    if circle := _circle(known):
        number = list(known).index(circle[0]) + 1
        return f"task {number} ({circle[0]}) needs itself in the end: {' needs '.join(circle)}"
    return ""


def _circle(tasks: Mapping[str, PlannedTask]) -> list[str]:
    """Tasks that wait for each other for ever, the first of them again at the end; empty where none do."""
    settled: set[str] = set()
    for start in tasks:
        path: list[str] = []
        waiting = [(start, iter(tasks[start].needs))] if start not in settled else []
        path += [start] if waiting else []
        while waiting:
            name, needs = waiting[-1]
            need = next(needs, None)
            if need is None:
                waiting.pop()
                path.pop()
                settled.add(name)
            elif need in path:
                return [*path[path.index(need) :], need]
            elif need not in settled:
                path.append(need)
                waiting.append((need, iter(tasks[need].needs)))
    return []
