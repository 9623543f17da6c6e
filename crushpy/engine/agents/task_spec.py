"""A task list: its specification, the check of its dependencies, and the schedule of its tasks. Pure.

Tasks start in the order of the list. An exclusive task waits until nothing runs, and nothing after it starts
meanwhile: the tasks that follow it find its changes.
"""

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal

from msgspec import Meta

from crushpy.core.messages import Data
from crushpy.core.start_options import StartOptions
from crushpy.engine.turn.limits import Limits

Strategy = Literal["", "full", "summarized"]
"""How a report passes between tasks; empty for the default."""
TaskState = Literal["waiting", "running", "done", "failed", "limit", "interrupted", "skipped"]
"""skipped: a task that it needs did not succeed."""
UNSUCCESSFUL: tuple[TaskState, ...] = ("failed", "limit", "interrupted", "skipped")
ENDED: tuple[TaskState, ...] = ("done", *UNSUCCESSFUL)


def find_wrong_label(labels: Sequence[str]) -> str | None:
    """The first label of a task or a worker that is not KEY=VALUE."""
    return next((label for label in labels if " " in label or not all(label.partition("="))), None)


class AgentDefinition(Data, frozen=True):
    """A kind of sub-agent. It narrows what a task may do, and never adds to it."""

    prompt: str = ""
    """Follows the system prompt."""
    tools: frozenset[str] | None = None
    """None: all that a task has."""
    denied_tools: frozenset[str] = frozenset()
    model: str = ""
    read_only: bool = False
    context_strategy: str = ""

    def allows(self, tool: str) -> bool:
        return tool not in self.denied_tools and (self.tools is None or tool in self.tools)


class TaskSpec(Data, frozen=True, forbid_unknown_fields=True):
    """One task, with the keys that it has in a file."""

    prompt: str
    name: str = ""
    needs: tuple[str, ...] | None = None
    """The tasks that it waits for and whose results it gets; None: those before it in the list."""
    worktree: bool = False
    """It works in its own git worktree and leaves a branch."""
    context_strategy: Strategy = ""
    """How it receives the reports of others."""
    report_strategy: Strategy = ""
    """How its own report is passed on."""
    read_only: bool = False
    model: str = ""
    agent: str = ""
    max_steps: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_cost: Annotated[float, Meta(ge=0)] | None = None
    labels: tuple[str, ...] = ()
    """What a worker of a fleet must have to take it."""
    retries: Annotated[int, Meta(ge=1)] = 3
    """On a fleet: attempts that may end without a result."""

    @property
    def limits(self) -> Limits:
        return Limits(self.max_steps, self.max_tokens, self.max_cost)

    @property
    def exclusive(self) -> bool:
        """Whether it may change files that other tasks use."""
        return not (self.worktree or self.read_only)


class FleetTerms(Data, frozen=True):
    """What a list takes along to the workers of a fleet. No keys, and no passwords."""

    version: str
    """Of crushpy."""
    model: str
    base: str
    """The commit that tasks start at."""
    prefix: str = ""
    """The project's folder below the repository's."""
    options: StartOptions = StartOptions()
    """The rights, and the limits of the whole list."""

    @property
    def limits(self) -> Limits:
        return Limits(self.options.max_steps, self.options.max_tokens, self.options.max_cost)


class TaskListSpec(Data, frozen=True):
    tasks: tuple[TaskSpec, ...]
    context_strategy: Strategy = ""
    report_strategy: Strategy = ""
    """Defaults for tasks that set none."""
    fleet: FleetTerms | None = None
    """None: it runs in this process."""

    def strategy_between(self, receiver: TaskSpec, sender: TaskSpec) -> str:
        """How a report reaches a later task. A task's setting takes precedence over the list's, and the
        receiver's over the sender's."""
        return (
            receiver.context_strategy
            or sender.report_strategy
            or self.context_strategy
            or self.report_strategy
        )


class TaskSchedule:
    """The states of all tasks of one list. At most `parallel` run at a time."""

    def __init__(self, tasks: Sequence[TaskSpec], parallel: int = 1, done: Collection[str] = ()) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._parallel = max(1, parallel)
        self._stopped = False
        self.states: dict[str, TaskState] = {
            task.name: "done" if task.name in done else "waiting" for task in tasks
        }

    def in_state(self, state: TaskState) -> list[str]:
        """The tasks in a state, in list order."""
        return [name for name, found in self.states.items() if found == state]

    def startable(self) -> list[str]:
        """The tasks that may all start now, in list order."""
        running = [self._tasks[name] for name in self.in_state("running")]
        if self._stopped or any(task.exclusive for task in running):
            return []
        found: list[str] = []
        for name in self.in_state("waiting"):
            task = self._tasks[name]
            if len(running) + len(found) >= self._parallel:
                break
            if any(self.states[need] != "done" for need in task.needs or ()):
                continue
            if task.exclusive:
                return found if running or found else [name]
            found.append(name)
        return found

    def start(self, name: str) -> None:
        self.states[name] = "running"

    def end(self, name: str, state: TaskState) -> list[str]:
        """Ends a running task. Returns the tasks that can never start because of that, in order."""
        self.states[name] = state
        return [] if state in ("done", "interrupted") else self._skip()

    def stop(self) -> None:
        """Starts no more tasks: a limit of the whole list was reached, or it was interrupted."""
        self._stopped = True

    def _skip(self) -> list[str]:
        before = self.in_state("skipped")
        while new := [name for name in self.in_state("waiting") if self._is_blocked(name)]:
            for name in new:  # needs may point forwards in the list: others may be blocked by these
                self.states[name] = "skipped"
        return [name for name in self.in_state("skipped") if name not in before]

    def _is_blocked(self, name: str) -> bool:
        return any(self.states[need] in UNSUCCESSFUL for need in self._tasks[name].needs or ())


def problem_with_needs(tasks: Sequence[TaskSpec]) -> str:
    """Why these tasks can never all succeed, naming the wrong one; empty if they can."""
    known: dict[str, tuple[str, ...]] = {}
    spelled: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        # Branches are files, and on some file systems `Docs` is `docs`.
        if (first := spelled.setdefault(task.name.casefold(), number)) != number:
            return f"task {number} has the name {task.name!r}, which task {first} has"
        known[task.name] = task.needs or ()
    for number, task in enumerate(tasks, 1):
        for need in known[task.name]:
            if need == task.name:
                return f"task {number} ({task.name}) needs itself"
            if need not in known:
                return f"task {number} ({task.name}) needs {need!r}, but no task has that name"
    if cycle := _cycle(known):
        number = list(known).index(cycle[0]) + 1
        return f"task {number} ({cycle[0]}) depends on itself: {' needs '.join(cycle)}"
    return ""


def _cycle(needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Tasks that wait for each other, the first repeated at the end; empty if there are none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        names: list[str] = error.args[1][:0:-1]  # each needs the next, the last needs the first
        first = min(names, key=list(needs).index)
        start = names.index(first)
        return [*names[start:], *names[:start], first]
    return []
