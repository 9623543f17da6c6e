"""The list of tasks that a conversation works through, for its front ends."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.messages import Data
from crushpy.engine.agents.agent import AgentServices
from crushpy.engine.agents.subagents import Subagents, Workplace
from crushpy.engine.event_bus import EventBus
from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.session.session import LiveSession
from crushpy.engine.turn.limits import Limits, Spent
from crushpy.engine.turn.turn import Status
from crushpy.storage.records import ListedTask
from crushpy.tools.base import ToolContext

if TYPE_CHECKING:
    from crushpy.engine.agents.task_list import TaskList
    from crushpy.engine.agents.task_orders import TaskOrders


class WorkingFolder(Data, frozen=True):
    """What tools work with in a folder, and what the model is told of it."""

    context: ToolContext
    system: str


class ListedWork:
    def __init__(
        self,
        services: AgentServices,
        subagents: Subagents,
        session: LiveSession,
        under_way: RunSlot,
        emit: EventBus,
        *,
        limits: Limits,
        elsewhere: Callable[[Path], WorkingFolder],
        worktrees: Path,
    ) -> None:
        """`worktrees` is where tasks have folders of their own, with what `elsewhere` says."""
        self._services = services
        self._subagents = subagents
        self._session = session
        self._under_way = under_way
        self._emit = emit
        self._limits = limits
        self._elsewhere = elsewhere
        self._worktrees = worktrees

    async def work_through(self, orders: "TaskOrders", parallel: int = 1) -> Status:
        """Has a new conversation work through a list of tasks, each in a session of its own."""
        listed = self._task_list()
        return await self._do(listed, listed.begin(orders, parallel, Spent(self._limits)))

    async def go_on(self, parallel: int | None = None) -> Status:
        """Goes on with the list of tasks that this conversation worked on before."""
        listed = self._task_list()
        return await self._do(listed, listed.go_on(parallel, Spent(self._limits)))

    async def unfinished(self) -> tuple[ListedTask, ...]:
        """All tasks of the list that this conversation worked on, where some are not done; else none."""
        listed = await self._services.store.tasks.load_list(self._session.info.root_id)
        tasks = listed.tasks if listed else ()
        if all(task.state == "done" for task in tasks):
            return ()
        if self._under_way.busy:
            return tasks
        stopped = msgspec.structs.replace
        return tuple(
            stopped(task, state="interrupted") if task.state == "running" else task for task in tasks
        )

    def _task_list(self) -> "TaskList":
        from crushpy.engine.agents.task_list import TaskList
        from crushpy.engine.agents.task_places import TaskPlaces

        def furnish(folder: Path) -> Workplace:
            around = self._elsewhere(folder)
            # What is changed there is a branch in the end: nothing to undo file by file.
            watches = tuple(
                watch for watch in self._services.watches if not isinstance(watch, ChangeRecorder)
            )
            services = msgspec.structs.replace(self._services, workspace=around.context, watches=watches)
            return Workplace(services, around.system, str(folder))

        root_id, cwd = self._session.info.root_id, self._services.workspace.cwd
        places = TaskPlaces(self._worktrees, root_id, cwd, furnish)
        return TaskList(self._subagents, self._session, self._services.store, places, self._emit)

    async def _do(self, listed: "TaskList", work: Coroutine[Any, Any, Status]) -> Status:
        async def until_over() -> Status:
            try:
                return await work
            finally:
                self._under_way.failure = listed.failure
                self._under_way.over()

        return await asyncio.shield(self._under_way.start(until_over()))
