"""What tasks of a list are told of each other: only what they need, and never more than fits."""

from collections.abc import Callable, Coroutine
from typing import Any

from crushpy.context.tags import element
from crushpy.core.messages import Data, counted
from crushpy.engine.agents.task_orders import TaskOrder, TaskOrders
from crushpy.engine.session.session import title_of
from crushpy.storage.records import ListedTask, TaskResult
from crushpy.tools.truncate import MAX_RESULT_CHARS, truncate

MAX_NEEDED = 60_000
"""Characters of all reports together that a task asked for by name."""
MAX_EARLIER = 20_000
"""The same where it did not, and gets what came before it."""
LEAST = 1_000
"""Characters without which a report is of no use: rather fewer of them."""
EARLIER = "# What earlier tasks reported\nThese are notes, not proof: check what you rely on."
Tell = Callable[[TaskResult, str], Coroutine[Any, Any, str]]
"""A result in the form that a strategy asks for."""


class TaskOutcome(Data, frozen=True):
    """A task that is done."""

    order: TaskOrder
    task: ListedTask
    result: TaskResult


class TaskReports:
    """`tell` gives a result whole, or summarised."""

    def __init__(self, orders: TaskOrders, tell: Tell) -> None:
        self._orders = orders
        self._tell = tell
        self._done: dict[str, TaskOutcome] = {}

    def add(self, outcome: TaskOutcome) -> None:
        self._done[outcome.order.name] = outcome

    async def prompt(self, order: TaskOrder) -> str:
        """The task's prompt, and the results it is to know of, in the form that it is to receive."""
        known = self._known_to(order)
        if not known:
            return order.work.prompt
        most = MAX_EARLIER if order.needs is None else MAX_NEEDED
        room = min(MAX_RESULT_CHARS, max(LEAST, most // len(known)))
        blocks: list[str] = []
        left = most
        for outcome in reversed(known):  # the latest ones matter most where not all of them fit
            text = await self._tell(outcome.result, self._orders.handed_to(order, outcome.order))
            shown = _shown(text, outcome, room)
            left -= min(room, len(shown))
            if left < 0:
                break
            blocks.insert(0, element("report", f"{_title(outcome)}\n\n{shown}"))
        if unsaid := len(known) - len(blocks):
            blocks.insert(
                0, f"({counted(unsaid, 'earlier report')} left out; recall finds them by their words.)"
            )
        return "\n".join([order.work.prompt, "", EARLIER, *blocks])

    async def kept(self, outcome: TaskOutcome) -> str:
        """The report as the conversation keeps it."""
        text = await self._tell(outcome.result, self._orders.kept_from(outcome.order))
        return _shown(text, outcome, MAX_RESULT_CHARS)

    def _known_to(self, order: TaskOrder) -> list[TaskOutcome]:
        """In the order of the list."""
        names = [task.name for task in self._orders.tasks]
        wanted = names[: names.index(order.name)] if order.needs is None else order.needs
        return [self._done[name] for name in names if name in wanted and name in self._done]


def is_named(task: ListedTask) -> bool:
    """True where somebody gave it a name."""
    return task.name != f"task-{task.number}"


def numbered(task: ListedTask) -> str:
    """What a task is called in running text."""
    return f"Task {task.number}, {task.name}" if is_named(task) else f"Task {task.number}"


def _title(outcome: TaskOutcome) -> str:
    return f"{numbered(outcome.task)}: {title_of(outcome.order.work.prompt)}"


def _shown(text: str, outcome: TaskOutcome, room: int) -> str:
    """A report with the branch it left, head and tail where that is too long, and where all of it is."""
    changes = outcome.task.changes
    if changes:
        changes = truncate(changes, max(LEAST, room // 2)).text
        room -= len(changes)
    shown = truncate(text, max(LEAST // 2, room))
    if shown.truncated_chars:
        text = f"{shown.text}\n\n[Cut; recall(message_id={outcome.result.id!r}) reads the whole report.]"
    return f"{text}\n\n{changes}" if changes else text
