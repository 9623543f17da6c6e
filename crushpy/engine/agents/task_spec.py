"""A task list: its specification, the check of its dependencies, and which tasks can start. Pure.

Tasks start in the order of the list. An exclusive task waits until nothing runs, and nothing after it starts
meanwhile: the tasks that follow it find its changes.
"""

from collections.abc import Mapping, Sequence
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
    max_steps: Annotated[int, Meta(ge=0)] | None = None
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


def find_startable(tasks: Sequence[TaskSpec], states: Mapping[str, str], parallel: int) -> list[str]:
    """The tasks that may all start now, in list order. At most `parallel` run at a time."""
    running = [task for task in tasks if states[task.name] == "running"]
    if any(task.exclusive for task in running):
        return []
    found: list[str] = []
    for task in tasks:
        if len(running) + len(found) >= parallel:
            break
        if states[task.name] != "waiting" or any(states[need] != "done" for need in task.needs or ()):
            continue
        if task.exclusive:
            return found if running or found else [task.name]
        found.append(task.name)
    return found


def find_blocked(tasks: Sequence[TaskSpec], states: Mapping[str, str]) -> dict[str, list[str]]:
    """The waiting tasks that can never start, in list order, each with the needs that did not succeed."""
    after, before = dict(states), dict[str, str]()
    while after != before:  # needs may point forwards in the list
        before = dict(after)
        for task in tasks:
            if after[task.name] == "waiting" and _failed_needs(task, after):
                after[task.name] = "skipped"
    return {task.name: _failed_needs(task, after) for task in tasks if after[task.name] != states[task.name]}


def _failed_needs(task: TaskSpec, states: Mapping[str, str]) -> list[str]:
    return [need for need in task.needs or () if states[need] in UNSUCCESSFUL]


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
