"""What tasks of a list are told about each other, and what the user is told about all of them."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from crushpy.context.tags import element
from crushpy.core import events
from crushpy.core.boundary import TurnStatus
from crushpy.core.call_words import call_title
from crushpy.core.messages import Data, counted, first_names
from crushpy.engine.agents.subagents import ENDS, FinishedTask
from crushpy.engine.agents.task_spec import TaskListSpec, TaskSpec, TaskState
from crushpy.engine.session.session import title_of
from crushpy.security.sanitize import clean, one_line
from crushpy.storage.records import ListedTask, TaskResult
from crushpy.storage.store import Store
from crushpy.tools.truncate import MAX_RESULT_CHARS, truncate

MAX_NEEDED_CHARS = 60_000
"""All reports together that a task asked for by name."""
MAX_EARLIER_CHARS = 20_000
"""All reports together, if it did not ask and gets those before it."""
MIN_REPORT_CHARS = 1_000
"""A shorter excerpt is of no use: fewer reports are sent instead."""
MAX_LINE_CHARS = 200
"""Of the line that says what a task does."""
MAX_NAMES = 10
"""Tasks or files listed by name."""
MAX_REASONS = 5
EARLIER = "# What earlier tasks reported\nThese are notes, not proof: check what you rely on."
MARKS = {"waiting": " ", "running": "▸", "done": "✓", "skipped": "-"}
_WORDS = {
    "failed": "failed",
    "limit": "stopped at a limit",
    "interrupted": "interrupted",
    "skipped": "skipped",
    "waiting": "not started",
}
_ORDER = ("running", "failed", "limit", "interrupted", "skipped", "waiting", "done")
"""Which rows are shown first if not all fit."""
_NAME, _STATE = 24, 11
_ENDED: dict[TurnStatus, TaskState] = {"done": "done", "limit": "limit", "interrupted": "interrupted"}
"""The state of a task by how its turn ended; any other has failed."""
FormatReport = Callable[[TaskResult, str], Coroutine[Any, Any, str]]
"""A result in the form that a strategy asks for."""


# --- between tasks ---------------------------------------------------------------------------------------


class TaskOutcome(Data, frozen=True):
    """A task that succeeded."""

    spec: TaskSpec
    task: ListedTask
    result: TaskResult


class TaskReports:
    """The reports of all tasks that succeeded. `format_report` gives a result in full or summarised."""

    def __init__(self, tasks: TaskListSpec, format_report: FormatReport) -> None:
        self._tasks, self._names = tasks, [task.name for task in tasks.tasks]
        self._format_report = format_report
        self.done: dict[str, TaskOutcome] = {}

    async def load(self, store: Store, tasks: Sequence[ListedTask]) -> list[str]:
        """Adds the stored reports of the tasks that are done. Returns their names."""
        results = await store.tasks.load_results([task.result_id for task in tasks if task.state == "done"])
        done = [task for task in tasks if task.state == "done" and task.result_id in results]
        for task in done:
            spec = self._tasks.tasks[task.number - 1]
            self.done[task.name] = TaskOutcome(spec, task, results[task.result_id])
        return [task.name for task in done]

    async def prompt_for(self, spec: TaskSpec) -> str:
        """The task's prompt with the reports it needs, each in the form that it should receive."""
        wanted = self._received_by(spec)
        known = [self.done[name] for name in self._names if name in wanted and name in self.done]
        if not known:
            return spec.prompt
        most = MAX_EARLIER_CHARS if spec.needs is None else MAX_NEEDED_CHARS
        room = min(MAX_RESULT_CHARS, max(MIN_REPORT_CHARS, most // len(known)))
        blocks: list[str] = []
        left = most
        for outcome in reversed(known):  # the latest matter most if not all fit
            text = await self._format_report(outcome.result, self._tasks.strategy_between(spec, outcome.spec))
            shown = _shown(text, outcome, room)
            left -= min(room, len(shown))
            if left < 0:
                break
            title = f"{task_label(outcome.task)}: {title_of(outcome.spec.prompt)}"
            blocks.insert(0, element("report", f"{title}\n\n{shown}"))
        if omitted := len(known) - len(blocks):
            blocks.insert(
                0, f"({counted(omitted, 'earlier report')} left out; recall finds them by their words.)"
            )
        return "\n".join([spec.prompt, "", EARLIER, *blocks])

    async def for_conversation(self, outcome: TaskOutcome) -> str:
        """The report as the conversation stores it; in full if no task receives it."""
        received = any(outcome.spec.name in self._received_by(spec) for spec in self._tasks.tasks)
        usual = self._tasks.report_strategy or self._tasks.context_strategy
        strategy = outcome.spec.report_strategy or usual
        text = await self._format_report(outcome.result, strategy if received else "full")
        return _shown(text, outcome, MAX_RESULT_CHARS)

    def _received_by(self, spec: TaskSpec) -> Sequence[str]:
        return self._names[: self._names.index(spec.name)] if spec.needs is None else spec.needs


def is_named(task: ListedTask) -> bool:
    """Whether the user gave it a name."""
    return task.name != f"task-{task.number}"


def task_label(task: ListedTask) -> str:
    """The name of a task in running text."""
    return f"Task {task.number}, {task.name}" if is_named(task) else f"Task {task.number}"


def task_title(spec: TaskSpec) -> str:
    """Of its session, and of the commit with its changes."""
    return f"{spec.name}: {title_of(spec.prompt)}"


def _shown(text: str, outcome: TaskOutcome, room: int) -> str:
    """A report with its branch; head and tail only if it is too long, and how to read all of it."""
    changes = outcome.task.changes
    if changes:
        changes = truncate(changes, max(MIN_REPORT_CHARS, room // 2)).text
        room -= len(changes)
    shown = truncate(text, max(MIN_REPORT_CHARS // 2, room))
    if shown.truncated_chars:
        text = (
            f"{shown.text}\n\n[Truncated; recall(message_id={outcome.result.id!r}) reads the whole report.]"
        )
    return f"{text}\n\n{changes}" if changes else text


class TaskMonitor:
    """Forwards the events of one task of a list under its name, and emits its state."""

    def __init__(self, task: ListedTask, many: int, emit: events.Emit, *, worktree: bool = False) -> None:
        self._emit = emit
        self._many = many
        self._worktree = worktree
        self.line = ""
        """What it does or said last."""
        self.task = task

    def __call__(self, event: events.Event) -> None:
        self._emit(events.TaskEvent(self.task.name, event))
        match event:
            case events.SessionOpened():
                self.update(session_id=event.id)
            case events.ToolCalled():
                self.emit_state(call_title(event.name, event.args, more=" …"))
            case events.MessageCommitted():
                self.update(steps=self.task.steps + 1)
                lines = event.text.strip().splitlines()
                self.emit_state(lines[-1] if lines else "")
            case events.UsageReported():
                self.update(tokens=event.total.total, cost=event.total.cost)
                self.emit_state()
            case events.Retry():
                self.emit_state(f"{event.reason} Trying again in {event.seconds:g} s.")
            case _:
                pass

    def update(self, **changes: str | float) -> None:
        self.task = msgspec.structs.replace(self.task, **changes)

    def end(self, task: FinishedTask) -> TaskState:
        """Its sub-agent has stopped: sets its state, and its result or the reason that it has none."""
        state = _ENDED.get(task.status, "failed")
        reason = task.failure.message if task.failure else ENDS.get(task.status, task.status)
        done = {"result_id": task.result.id} if state == "done" else {"error": reason}
        self.update(state=state, **done)
        return state

    def emit_state(self, line: str = "") -> None:
        """Emits its state, and what it does or said last."""
        self.line = line.strip()[:MAX_LINE_CHARS] or self.line
        self._emit(task_state_event(self.task, self._many, self.line, worktree=self._worktree))


def task_state_event(
    task: ListedTask, many: int, line: str = "", *, worktree: bool = False
) -> events.ListedTaskChanged:
    figures, ended = (task.steps, task.tokens, task.cost), (task.session_id, task.branch, task.error)
    return events.ListedTaskChanged(
        task.name, task.state, *figures, line, task.number, many, *ended, worktree
    )


def summarize_list(tasks: Sequence[ListedTask], root_id: str, stopped: str) -> tuple[str, str, str]:
    """Why not all tasks are done, the reasons of those that failed, and how to continue.

    `stopped`: interrupted, or the limit that was reached; empty if the list ran to its end.
    """
    named = {state: [task.name for task in tasks if task.state == state] for state in _WORDS}
    done = sum(task.state == "done" for task in tasks)
    rest = "; ".join(f"{_WORDS[state]}: {some_names(names)}" for state, names in named.items() if names)
    why = {"": "", "interrupted": "Interrupted: "}.get(stopped, f"Stopped, {stopped}: ")
    failed = [task for task in tasks if task.state == "failed"][:MAX_REASONS]
    return (
        f"{why}{done} of {len(tasks)} tasks are done; {rest}.",
        "; ".join(f"{task.name}: {task.error}" for task in failed),
        f"`crushpy run --resume {root_id}` continues with the rest (with the same --allow or --yolo); "
        "the file is not read again.",
    )


def branches_left(tasks: Sequence[ListedTask], root_id: str) -> str:
    """The branches of tasks with worktrees, and how to list them; empty if there are none."""
    many = sum(bool(task.branch) for task in tasks)
    if not many:
        return ""
    held = f"{many} branches hold" if many > 1 else "1 branch holds"
    look = f"git branch --list 'crushpy/{root_id}/*'"
    return f"{held} the changes of tasks with a worktree, not merged: {look}"


def some_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return first_names([*map(one_line, names)], MAX_NAMES)


# --- as a table ------------------------------------------------------------------------------------------


def table_lines(
    tasks: Sequence[events.ListedTaskChanged],
    width: int,
    height: int,
    more: Callable[[str], str] = lambda _: "",
) -> list[str]:
    """A table of at most `height` lines and `width` columns. `more`: further columns of a task, and for an
    empty name their heading."""
    from rich.cells import cell_len, set_cell_size

    room = max(0, height - 2)
    shown = sorted(tasks, key=lambda task: _ORDER.index(task.state))[:room] if len(tasks) > room else tasks
    names = min(_NAME, max((cell_len(task.name) for task in shown), default=4))
    lines = [
        f"  {'task':<{names}}  {'state':<{_STATE}} {'step':>4} {'tokens':>9} {'cost':>8}{more('')}  last"
    ]
    for task in sorted(shown, key=lambda task: task.number):
        name = set_cell_size(fit_line(task.name, names), names)
        last = one_line(clean(task.error or task.branch or unchanged(task) or task.line))
        figures = f"{task.step:>4} {task.tokens:>9,} {money(task.cost):>8}{more(task.name)}"
        lines.append(f"{MARKS.get(task.state, '✗')} {name}  {task.state:<{_STATE}} {figures}  {last}")
    lines.append(_total_line(tasks, len(tasks) - len(shown)))
    return [fit_line(line, width) for line in lines[-height:]]


def unchanged(task: events.ListedTaskChanged) -> str:
    """A note for a task whose worktree has no changes; empty for any other."""
    return "no changes, no branch" if task.worktree and task.state == "done" and not task.branch else ""


def _total_line(tasks: Sequence[events.ListedTaskChanged], hidden: int) -> str:
    states = {state: sum(task.state == state for task in tasks) for state in _ORDER}
    words = [f"{many} {state}" for state, many in states.items() if many]
    words += [f"{sum(task.tokens for task in tasks):,} tokens", money(sum(task.cost for task in tasks))]
    more = f"; {hidden} not shown" if hidden else ""
    return f"  {counted(len(tasks), 'task')}: {', '.join(words)}{more}"


def money(cost: float) -> str:
    return f"${cost:.2f}"


def fit_line(text: str, width: int) -> str:
    """The text, shortened to `width` terminal columns."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
