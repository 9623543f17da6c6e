"""Works through a list of tasks, one after the other, each told what those before it reported."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from crushpy.context.tags import element
from crushpy.engine.agents.subagents import Subagents
from crushpy.engine.session.session import LiveSession, title_of, user_message
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.turn import Status
from crushpy.errors import CrushpyError
from crushpy.events import Event, Notice, TurnEnded
from crushpy.tools.base import Delegation
from crushpy.tools.errors import ToolError

EARLIER = "# What earlier tasks reported\nThese are notes, not proof: check what you rely on."


class TaskList:
    """The list is the first prompt of a conversation, which keeps a note of each report."""

    def __init__(self, subagents: Subagents, session: LiveSession, emit: Callable[[Event], None]) -> None:
        self._subagents = subagents
        self._session = session
        self._emit = emit
        self.failure: CrushpyError | None = None
        """Why a task failed."""

    async def run(self, orders: Sequence[Delegation]) -> Status:
        """Stops at the first task that does not come to its end."""
        self._subagents.spent = Spent()
        await self._session.add_prompt(user_message(_listed(orders)))
        self._emit(TurnEnded("done"))
        reports: list[str] = []
        for number, order in enumerate(orders, 1):
            self._emit(Notice(f"Task {number} of {len(orders)}: {title_of(order.prompt)}"))
            status = await self._one(number, order, reports)
            if status != "done":
                left = f"{len(orders) - number} not begun"
                text = f"Task {number} of {len(orders)} did not come to its end; {left}."
                self._emit(Notice(text, "warning"))
                return status
        return "done"

    async def _one(self, number: int, order: Delegation, reports: list[str]) -> Status:
        told = f"{order.prompt}\n\n{EARLIER}\n" + "\n".join(reports) if reports else order.prompt
        try:
            task = await self._subagents.work(msgspec.structs.replace(order, prompt=told), self._emit)
        except asyncio.CancelledError:
            return "interrupted"
        except ToolError as error:
            self.failure = CrushpyError(str(error))
            return "error"
        self.failure = task.failure
        if task.status == "done":
            text = await self._subagents.told(task.result, order.context_strategy)
            reports.append(element("report", f"Task {number}: {title_of(order.prompt)}\n\n{text}"))
            where = f"Task {number} (session {task.report.session_id})"
            await self._session.add_note(f"{where} reports:\n\n{text}")
        return task.status


def _listed(orders: Sequence[Delegation]) -> str:
    return "\n".join(f"{number}. {order.prompt}" for number, order in enumerate(orders, 1))
