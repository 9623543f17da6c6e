"""Works through a list of tasks: several at a time where they may, each told what it needs of the others.

What is to be done and how far it is are stored, so that another process can go on with it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import Event, Notice, TurnEnded
from crushpy.core.messages import Note
from crushpy.engine.agents.subagents import ENDS, Finished, Subagents, Workplace
from crushpy.engine.agents.task_endings import branches_left, ending
from crushpy.engine.agents.task_orders import TaskOrder, TaskOrders
from crushpy.engine.agents.task_places import TaskPlaces
from crushpy.engine.agents.task_reports import TaskOutcome, TaskReports, is_named, numbered
from crushpy.engine.agents.task_schedule import ENDED_BADLY, TaskSchedule, TaskState
from crushpy.engine.agents.task_watch import TaskWatch
from crushpy.engine.session.session import LiveSession, title_of, user_message
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.turn import Status
from crushpy.engine.unexpected import unexpected
from crushpy.storage.records import ListedTask, StoredTaskList
from crushpy.storage.store import Store
from crushpy.tools.errors import ToolError
from crushpy.util.spawn import spawn
from crushpy.util.uncancellable import uncancellable

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32
"""Tasks that may run side by side."""
_STATES: dict[Status, TaskState] = {"done": "done", "limit": "limit", "interrupted": "interrupted"}


class TaskList:
    """The list is the first prompt of a conversation, which keeps a note of each report."""

    def __init__(
        self,
        subagents: Subagents,
        session: LiveSession,
        store: Store,
        places: TaskPlaces,
        emit: Callable[[Event], None],
    ) -> None:
        self._subagents = subagents
        self._session = session
        self._store = store
        self._places = places
        self._emit = emit
        self.failure: CrushpyError | None = None
        """Why tasks failed."""

    async def begin(self, orders: TaskOrders, parallel: int, spent: Spent) -> Status:
        """Stores the list and works through it. Raises `UsageError` before anything where it cannot be."""
        tasks = tuple(ListedTask(number, order.name) for number, order in enumerate(orders.tasks, 1))
        warnings = await self._places.check(_with_worktrees(orders, tasks))
        await self._session.add_prompt(user_message(_listed(orders)))
        self._emit(TurnEnded("done"))
        listed = StoredTaskList(msgspec.json.encode(orders).decode(), parallel, tasks)
        await self._store.tasks.add_list(self._root, listed)
        return await self._work_through(orders, tasks, parallel, spent, warnings)

    async def go_on(self, parallel: int | None, spent: Spent) -> Status:
        """Goes on with the list that is stored. Raises `UsageError` where there is nothing to go on with."""
        listed = await self._store.tasks.load_list(self._root)
        if listed is None or all(task.state == "done" for task in listed.tasks):
            why = "All tasks of its list are done." if listed else ""
            raise UsageError(
                f"There is no prompt. {why}".strip(),
                'Say what to do: crushpy run --resume ID "and now the docs"',
            )
        orders = msgspec.json.decode(listed.orders, type=TaskOrders)
        warnings = await self._places.check(_with_worktrees(orders, listed.tasks))
        self._session.announce()
        return await self._work_through(orders, listed.tasks, parallel or listed.parallel, spent, warnings)

    @property
    def _root(self) -> str:
        return self._session.info.root_id

    async def _work_through(
        self,
        orders: TaskOrders,
        tasks: tuple[ListedTask, ...],
        parallel: int,
        spent: Spent,
        warnings: list[str],
    ) -> Status:
        self._subagents.spent = spent
        self._orders = {order.name: order for order in orders.tasks}
        self._reports = TaskReports(orders, self._subagents.told)
        self._watches = {
            task.name: TaskWatch(task, len(tasks), self._emit, worktree=self._orders[task.name].worktree)
            for task in tasks
        }
        for text in warnings:
            self._emit(Notice(text, "warning"))
        done = await self._recover(tasks)
        for watch in self._watches.values():
            watch.tell()
        self._schedule = TaskSchedule([order.planned for order in orders.tasks], parallel, done)
        try:
            return self._conclude(await self._run(spent))
        finally:
            await uncancellable(self._places.close())

    async def _recover(self, tasks: tuple[ListedTask, ...]) -> list[str]:
        """Takes up what is stored: what is done stays done, everything else begins anew. Who is done."""
        results = await self._store.tasks.load_results(
            [task.result_id for task in tasks if task.state == "done"]
        )
        done: list[str] = []
        for task in tasks:
            if task.state == "done" and task.result_id in results:
                self._reports.add(TaskOutcome(self._orders[task.name], task, results[task.result_id]))
                done.append(task.name)
            elif task.state != "waiting":
                if task.state == "running" and task.session_id:  # its process is gone
                    await self._store.sessions.update(task.session_id, end_reason="interrupted")
                await self._store_state(task.name, ListedTask(task.number, task.name))
        return done

    async def _run(self, spent: Spent) -> str:
        """Until nothing runs and nothing can start; why it was stopped before, in words."""
        running: dict[asyncio.Task[TaskState], str] = {}
        stopped = ""
        try:
            while True:
                startable = self._schedule.startable()
                if startable and (stopped := spent.reached()):
                    self._schedule.stop()
                for name in self._schedule.startable():
                    self._schedule.start(name)
                    running[spawn(self._one(name))] = name
                if not running:
                    return stopped
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in ended:
                    await self._settle(running.pop(each), each.result())
        except BaseException as error:
            self._schedule.stop()
            for each in running:
                each.cancel()
            with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await uncancellable(self._all_settled(running))
            if not isinstance(error, asyncio.CancelledError):
                raise
            return "interrupted"

    async def _all_settled(self, running: dict[asyncio.Task[TaskState], str]) -> None:
        for each, name in running.items():
            await asyncio.wait([each])
            await self._settle(name, "interrupted" if each.cancelled() else each.result())

    async def _settle(self, name: str, state: TaskState) -> None:
        """A task has come to rest: so have those that can never start now."""
        for skipped in self._schedule.end(name, state):
            needs = self._orders[skipped].needs or ()
            missing = [need for need in needs if self._schedule.states[need] in ENDED_BADLY]
            self._watches[skipped].change(error=f"it needs {', '.join(missing)}")
            await self._store_state(skipped, state="skipped")
            self._watches[skipped].tell()

    # --- one task ----------------------------------------------------------------------------------------

    async def _one(self, name: str) -> TaskState:
        """Works on one task; how that ended, which is stored and told. Never raises but when cancelled."""
        order, watch = self._orders[name], self._watches[name]
        try:
            state = await self._attempt(order, watch)
        except asyncio.CancelledError:
            state = "done" if watch.task.state == "done" else "interrupted"
        except (ToolError, CrushpyError) as error:
            watch.change(error=error.message if isinstance(error, CrushpyError) else str(error))
            state = "failed"
        except Exception as error:
            log.exception("task %s failed", name)
            watch.change(error=unexpected(error).message)
            state = "failed"
        try:
            if watch.task.state != "done":
                await uncancellable(self._store_state(name, state=state))
        except asyncio.CancelledError:
            pass
        except CrushpyError as error:  # told by whatever is stored next
            log.warning("the state of task %s was not stored: %s", name, error)
            watch.change(state=state, error=error.message)
        watch.tell()
        return state

    async def _attempt(self, order: TaskOrder, watch: TaskWatch) -> TaskState:
        await self._store_state(order.name, state="running")
        watch.tell()
        work = msgspec.structs.replace(order.work, prompt=await self._reports.prompt(order))
        title = f"{order.name}: {title_of(order.work.prompt)}"
        if not order.worktree:
            task = await self._subagents.work(work, watch, title=title, limits=order.limits)
        else:
            place = await self._places.open(order.name)
            if earlier := self._places.earlier(order.name):
                self._emit(
                    Notice(f"What an earlier attempt at {order.name} changed is the branch {earlier} now.")
                )
            try:
                task = await self._subagents.work(work, watch, title=title, limits=order.limits, place=place)
            finally:
                await uncancellable(self._leave(order, watch, place, title))
        return await uncancellable(self._finished(order, watch, task))

    async def _leave(self, order: TaskOrder, watch: TaskWatch, place: Workplace, title: str) -> None:
        left = await self._places.leave(order.name, place, title)
        watch.change(branch=left.branch, changes=left.changes)

    async def _finished(self, order: TaskOrder, watch: TaskWatch, task: Finished) -> TaskState:
        state = _STATES.get(task.status, "failed")
        if state != "done":
            reason = task.failure.message if task.failure else ""
            watch.change(error=reason or ENDS.get(task.status, task.status))
            return state
        watch.change(result_id=task.result.id)
        await self._store_state(order.name, state="done")
        outcome = TaskOutcome(order, watch.task, task.result)
        self._reports.add(outcome)
        where = f"{numbered(watch.task)} (session {task.report.session_id})"
        await self._session.add_note(Note(f"{where} reports:\n\n{await self._reports.kept(outcome)}"))
        return "done"

    async def _store_state(self, name: str, anew: ListedTask | None = None, state: str = "") -> None:
        watch = self._watches[name]
        watch.task = anew or msgspec.structs.replace(watch.task, state=state)
        await self._store.tasks.update(self._root, watch.task)

    # --- the end -----------------------------------------------------------------------------------------

    def _conclude(self, stopped: str) -> Status:
        """Says what was left, what is not done and how to go on."""
        states, tasks = self._schedule.states, [watch.task for watch in self._watches.values()]
        if branches := branches_left(tasks, self._root):
            self._emit(Notice(branches))
        if all(state == "done" for state in states.values()):
            return "done"
        ended = ending(states, tasks, self._root, stopped)
        self._emit(Notice(f"{ended.text} {ended.go_on}", "warning"))
        if stopped == "interrupted":
            return "interrupted"
        if self._schedule.of("failed"):
            self.failure = CrushpyError(f"{ended.text} {ended.reasons}", ended.go_on)
            return "error"
        return "limit"


def _with_worktrees(orders: TaskOrders, tasks: Sequence[ListedTask]) -> list[str]:
    """Those that will want one, by number and name."""
    both = zip(orders.tasks, tasks, strict=True)
    return [
        f"task {task.number} ({task.name})" for order, task in both if order.worktree and task.state != "done"
    ]


def _listed(orders: TaskOrders) -> str:
    lines: list[str] = []
    for number, order in enumerate(orders.tasks, 1):
        name = f"{order.name}: " if is_named(ListedTask(number, order.name)) else ""
        lines.append(f"{number}. {name}{order.work.prompt}")
    return "\n".join(lines)
