"""Works through a list of tasks, one after the other, each told what those before it reported."""

import asyncio
from collections.abc import Callable

import msgspec

from crushpy.context.tags import element
from crushpy.engine.agents.subagents import Subagents
from crushpy.engine.session.session import LiveSession, title_of, user_message
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.turn import Status
from crushpy.errors import CrushpyError
from crushpy.events import Event, Notice, TurnEnded
from crushpy.messages import Data, Note
from crushpy.storage.records import TaskResult
from crushpy.tools.base import Delegation
from crushpy.tools.errors import ToolError
from crushpy.tools.truncate import MAX_RESULT_CHARS, truncate

MAX_HANDED_ON = 60_000
"""Characters of all reports together, as a later task gets them."""
EARLIER = "# What earlier tasks reported\nThese are notes, not proof: check what you rely on."


class Strategies(Data, frozen=True):
    """How reports pass between tasks: full, summarized, or empty where nobody chose."""

    context_strategy: str = ""
    """How a task receives the reports of those before it."""
    report_strategy: str = ""
    """How its own report is handed on."""


class TaskOrder(Data, frozen=True):
    """One task of a list."""

    work: Delegation
    own: Strategies = Strategies()


class TaskOrders(Data, frozen=True):
    """A list of tasks, in order."""

    tasks: tuple[TaskOrder, ...]
    shared: Strategies = Strategies()
    """Hold where a task says nothing itself."""

    def handed_to(self, receiver: TaskOrder, sender: TaskOrder) -> str:
        """How a report reaches a later task. A task's own words count before the list's, and the one that
        receives before the one that reports."""
        return (
            receiver.own.context_strategy
            or sender.own.report_strategy
            or self.shared.context_strategy
            or self.shared.report_strategy
        )

    def kept_from(self, sender: TaskOrder) -> str:
        """How the conversation keeps a report."""
        return sender.own.report_strategy or self.shared.report_strategy or self.shared.context_strategy


class _Report(Data, frozen=True):
    sender: TaskOrder
    title: str
    result: TaskResult


class TaskList:
    """The list is the first prompt of a conversation, which keeps a note of each report."""

    def __init__(self, subagents: Subagents, session: LiveSession, emit: Callable[[Event], None]) -> None:
        self._subagents = subagents
        self._session = session
        self._emit = emit
        self._reports: list[_Report] = []
        self.failure: CrushpyError | None = None
        """Why a task failed."""

    async def run(self, orders: TaskOrders) -> Status:
        """Stops at the first task that does not come to its end."""
        self._subagents.spent = Spent()
        await self._session.add_prompt(user_message(_listed(orders)))
        self._emit(TurnEnded("done"))
        many = len(orders.tasks)
        for number, order in enumerate(orders.tasks, 1):
            self._emit(Notice(f"Task {number} of {many}: {title_of(order.work.prompt)}"))
            status = await self._one(number, order, orders)
            if status != "done":
                text = f"Task {number} of {many} did not come to its end; {many - number} not begun."
                self._emit(Notice(text, "warning"))
                return status
        return "done"

    async def _one(self, number: int, order: TaskOrder, orders: TaskOrders) -> Status:
        try:
            work = msgspec.structs.replace(order.work, prompt=await self._told(order, orders))
            task = await self._subagents.work(work, self._emit)
        except asyncio.CancelledError:
            return "interrupted"
        except ToolError as error:
            self.failure = CrushpyError(str(error))
            return "error"
        self.failure = task.failure
        if task.status == "done":
            title = f"Task {number}: {title_of(order.work.prompt)}"
            self._reports.append(_Report(order, title, task.result))
            text = await self._subagents.told(task.result, orders.kept_from(order))
            where = f"Task {number} (session {task.report.session_id})"
            kept = _bounded(text, task.result, MAX_RESULT_CHARS)
            await self._session.add_note(Note(f"{where} reports:\n\n{kept}"))
        return task.status

    async def _told(self, order: TaskOrder, orders: TaskOrders) -> str:
        """The task's prompt, and what those before it reported, in the form that it is to receive."""
        if not self._reports:
            return order.work.prompt
        blocks = [order.work.prompt, "", EARLIER]
        room = min(MAX_RESULT_CHARS, MAX_HANDED_ON // len(self._reports))
        for report in self._reports:
            text = await self._subagents.told(report.result, orders.handed_to(order, report.sender))
            blocks.append(element("report", f"{report.title}\n\n{_bounded(text, report.result, room)}"))
        return "\n".join(blocks)


def _bounded(text: str, result: TaskResult, room: int) -> str:
    """Head and tail of a report that is too long, and where all of it is."""
    shown = truncate(text, room)
    if not shown.cut_chars:
        return text
    return f"{shown.text}\n\n[Cut; recall(message_id={result.id!r}) reads the whole report.]"


def _listed(orders: TaskOrders) -> str:
    return "\n".join(f"{number}. {order.work.prompt}" for number, order in enumerate(orders.tasks, 1))
