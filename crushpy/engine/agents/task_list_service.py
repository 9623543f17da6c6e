"""Works through a list of tasks, several at a time if possible, and stores how far it is.

Another process can continue a stored list.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import Emit, MessageCommitted, Notice, TaskEvent, TurnEnded
from crushpy.core.messages import Note, Usage
from crushpy.engine.agents import task_reports
from crushpy.engine.agents.subagents import FinishedTask, FleetAttempt, Subagents, TaskWorkspace
from crushpy.engine.agents.task_spec import (
    TaskListSpec,
    TaskSpec,
    TaskState,
    find_blocked,
    find_startable,
)
from crushpy.engine.agents.task_workspaces import Worktrees
from crushpy.engine.event_bus import unexpected_error
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.runtime import Runtime
from crushpy.engine.session.session import user_message
from crushpy.engine.turn.limits import Spent
from crushpy.storage.records import ListedTask, StoredTaskList
from crushpy.storage.store import Store
from crushpy.tools.base import Delegation
from crushpy.tools.errors import ToolError
from crushpy.util.spawn import spawn
from crushpy.util.uncancellable import in_thread, uncancellable

log = logging.getLogger(__name__)


class TaskFleet(Protocol):
    """Runs the tasks of lists on other machines, which read everything they need from storage."""

    unanswered: bool
    """A task asked for a permission, and no user answered in time."""

    def prepare(self, root_id: str, spec: TaskListSpec, model: str) -> tuple[TaskListSpec, list[str]]:
        """The list with its terms, and warnings. In a thread. Raises UsageError if it is impossible."""
        ...

    def follow(
        self, store: Store, root_id: str, spec: TaskListSpec, emit: Emit
    ) -> AsyncIterator[tuple[ListedTask, str]]:
        """Starts the tasks that can start. Returns all tasks, then each change of one, with a line about it:
        until all have ended, or not at all if the user does not want to wait. An interrupt ends it early."""
        ...


class TaskListRun:
    """One run through a list. The list is the first prompt of a conversation, which stores each report."""

    def __init__(self, runtime: Runtime, fleet: TaskFleet | None = None) -> None:
        scope = runtime.scope
        self._fleet, self._approvals = fleet, scope.services.approvals
        self._subagents, self._open_workspace = runtime.subagents, runtime.open_workspace
        self._audit, self._spent = runtime.scope.services.audit, Spent(runtime.limits)
        self._session, self._store, self._emit = scope.session, scope.services.store, scope.emit
        self._root = scope.session.info.root_id
        self._trees = Worktrees(runtime.worktrees, self._root, scope.services.workspace.cwd)
        self._git_lock = asyncio.Lock()
        """One git process at a time writes to the repository."""
        self.failure: CrushpyError | None = None

    async def begin(self, spec: TaskListSpec, parallel: int) -> TurnStatus:
        """Stores the list and works through it. Raises `UsageError` before that if it is impossible."""
        tasks = tuple(ListedTask(number, task.name) for number, task in enumerate(spec.tasks, 1))
        spec, warnings = await self._prepare(spec, tasks)
        await self._session.add_prompt(user_message(_listed(spec)))
        self._emit(TurnEnded("done"))
        listed = StoredTaskList(msgspec.json.encode(spec).decode(), parallel, tasks)
        await self._store.tasks.add_list(self._root, listed)
        return await self._work_through(spec, tasks, parallel, warnings)

    async def resume(self, parallel: int | None) -> TurnStatus:
        """Continues the stored list. Raises `UsageError` if there is nothing to continue."""
        listed = await self._store.tasks.load_list(self._root)
        if listed is None or all(task.state == "done" for task in listed.tasks):
            why = "All tasks of its list are done." if listed else ""
            raise UsageError(
                f"There is no prompt. {why}".strip(),
                'Say what to do: crushpy run --resume ID "and now the docs"',
            )
        spec = msgspec.json.decode(listed.orders, type=TaskListSpec)
        self._fleet = self._fleet if spec.fleet is not None else None
        spec, warnings = await self._prepare(spec, listed.tasks)
        self._session.announce()
        return await self._work_through(spec, listed.tasks, parallel or listed.parallel, warnings)

    async def _prepare(
        self, spec: TaskListSpec, tasks: Sequence[ListedTask]
    ) -> tuple[TaskListSpec, list[str]]:
        """The list as it is run, and warnings. Raises `UsageError` if it cannot run, for example because a
        task wants a worktree and there can be none."""
        if self._fleet is not None:
            return await in_thread(self._fleet.prepare, self._root, spec, self._session.info.model)
        for wanted, task in zip(spec.tasks, tasks, strict=True):
            if wanted.worktree and task.state != "done":
                return spec, await in_thread(self._trees.check, f"task {task.number} ({task.name})")
        return spec, []

    async def _work_through(
        self, spec: TaskListSpec, tasks: tuple[ListedTask, ...], parallel: int, warnings: list[str]
    ) -> TurnStatus:
        self._subagents.spent = self._spent
        self._tasks = spec.tasks
        self._reports = task_reports.TaskReports(spec, self._subagents.format_report)
        self._monitors = {
            task.name: task_reports.TaskMonitor(task, len(tasks), self._emit, worktree=wanted.worktree)
            for wanted, task in zip(spec.tasks, tasks, strict=True)
        }
        for text in warnings:
            self._emit(Notice(text, "warning"))
        if self._fleet is not None:
            return await self._follow(self._fleet, spec, tasks)
        await self._recover(tasks)
        for monitor in self._monitors.values():
            monitor.emit_state()
        try:
            return self._conclude(await self._run(parallel))
        finally:
            await in_thread(self._trees.close)

    async def _follow(
        self, fleet: TaskFleet, spec: TaskListSpec, tasks: tuple[ListedTask, ...]
    ) -> TurnStatus:
        """Has other machines work through the list, and reports what they do."""
        noted = await self._reports.load(self._store, tasks)
        stopped = ""
        try:
            async for task, line in fleet.follow(self._store, self._root, spec, self._emit):
                monitor = self._monitors[task.name]
                before, monitor.task = monitor.task, task
                used = Usage(task.tokens - before.tokens, cost=task.cost - before.cost)
                self._session.spend(used)
                if task.state == "done" and task.name not in noted:
                    noted += await self._reports.load(self._store, [task])
                    outcome = self._reports.done[task.name]
                    await self._note_report(outcome)
                    report = MessageCommitted(outcome.result.id, (outcome.result.raw,), "")
                    self._emit(TaskEvent(task.name, report))
                monitor.emit_state(line)
        except asyncio.CancelledError:
            stopped = "interrupted"
        self._approvals.denied_noninteractive |= fleet.unanswered
        detached = any(monitor.task.state in ("waiting", "running") for monitor in self._monitors.values())
        return "done" if detached and not stopped else self._conclude(stopped)

    async def _recover(self, tasks: tuple[ListedTask, ...]) -> None:
        """Restores the stored states: done tasks stay done, all others start again."""
        done = await self._reports.load(self._store, tasks)
        for task in tasks:
            if task.name not in done and task.state != "waiting":
                if task.state == "running" and task.session_id:  # its process died
                    await self._store.sessions.update(task.session_id, end_reason="interrupted")
                await self._store_state(task.name, ListedTask(task.number, task.name))

    def _states(self) -> dict[str, str]:
        return {name: monitor.task.state for name, monitor in self._monitors.items()}

    async def _run(self, parallel: int) -> str:
        """Runs until nothing can start. Returns why it was stopped early, in words."""
        running: dict[asyncio.Task[TaskState], str] = {}
        stopped = ""
        try:
            while True:
                states = self._states() | dict.fromkeys(running.values(), "running")
                startable = [] if stopped else find_startable(self._tasks, states, parallel)
                if startable and not (stopped := self._spent.reached()):
                    running |= {spawn(self._run_task(name)): name for name in startable}
                if not running:
                    return stopped
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in ended:
                    del running[each]
                    await self._settle(each.result())
        except BaseException as error:
            for each in running:
                each.cancel()

            async def settle_all() -> None:
                for each in running:
                    await asyncio.wait([each])
                    await self._settle("interrupted" if each.cancelled() else each.result())

            with suppress(asyncio.CancelledError):  # a second interrupt changes nothing
                await uncancellable(settle_all())
            if not isinstance(error, asyncio.CancelledError):
                raise
            return "interrupted"

    async def _settle(self, state: TaskState) -> None:
        """A task has ended: skips those that can never start now."""
        if state in ("done", "interrupted"):
            return
        for skipped, missing in find_blocked(self._tasks, self._states()).items():
            self._monitors[skipped].update(error=f"it needs {', '.join(missing)}")
            await self._store_state(skipped, state="skipped")
            self._monitors[skipped].emit_state()

    # --- one task ----------------------------------------------------------------------------------------

    async def _run_task(self, name: str) -> TaskState:
        """Runs one task; stores and emits its final state. Raises only when cancelled."""
        monitor = self._monitors[name]
        spec = self._tasks[monitor.task.number - 1]
        try:
            state = await self._attempt(spec, monitor)
        except asyncio.CancelledError:
            state = "done" if monitor.task.state == "done" else "interrupted"
        except (ToolError, CrushpyError) as error:
            monitor.update(error=error.message if isinstance(error, CrushpyError) else str(error))
            state = "failed"
        except Exception as error:
            log.exception("task %s failed", name)
            monitor.update(error=unexpected_error(error).message)
            state = "failed"
        try:
            if monitor.task.state != "done":
                await uncancellable(self._store_state(name, state=state))
        except asyncio.CancelledError:
            pass
        except CrushpyError as error:  # the next write reports it
            log.warning("the state of task %s was not stored: %s", name, error)
            monitor.update(state=state, error=error.message)
        monitor.emit_state()
        return state

    async def _attempt(self, spec: TaskSpec, monitor: task_reports.TaskMonitor) -> TaskState:
        await self._store_state(spec.name, state="running")
        monitor.emit_state()
        workspace = None
        if spec.worktree:
            async with self._git_lock:
                workspace = self._open_workspace(await in_thread(self._trees.add, spec.name))
            if earlier := self._trees.open[spec.name].earlier:
                self._emit(
                    Notice(f"The changes of an earlier attempt at {spec.name} are on the branch {earlier}.")
                )
        try:
            task = await work_on_task(self._subagents, self._reports, spec, monitor, workspace)
        finally:
            if spec.worktree:
                await uncancellable(self._leave(spec, monitor))
        return await uncancellable(self._finished(spec, monitor, task))

    async def _leave(self, spec: TaskSpec, monitor: task_reports.TaskMonitor) -> None:
        title = task_reports.task_title(spec)
        async with self._git_lock:
            left = await in_thread(self._trees.leave, self._trees.open[spec.name], title)
        monitor.update(branch=left.branch, changes=left.changes)
        self._audit.files_on_branches += left.files

    async def _finished(
        self, spec: TaskSpec, monitor: task_reports.TaskMonitor, task: FinishedTask
    ) -> TaskState:
        if (state := monitor.end(task)) != "done":
            return state
        await self._store_state(spec.name, state="done")
        outcome = task_reports.TaskOutcome(spec, monitor.task, task.result)
        self._reports.done[spec.name] = outcome
        await self._note_report(outcome)
        return "done"

    async def _note_report(self, outcome: task_reports.TaskOutcome) -> None:
        where = f"{task_reports.task_label(outcome.task)} (session {outcome.result.session_id})"
        await self._session.add_note(
            Note(f"{where} reports:\n\n{await self._reports.for_conversation(outcome)}")
        )

    async def _store_state(self, name: str, replacement: ListedTask | None = None, state: str = "") -> None:
        monitor = self._monitors[name]
        monitor.task = replacement or msgspec.structs.replace(monitor.task, state=state)
        await self._store.tasks.update(self._root, monitor.task)

    def _conclude(self, stopped: str) -> TurnStatus:
        """Reports branches, unfinished tasks and how to continue."""
        tasks = [monitor.task for monitor in self._monitors.values()]
        if branches := task_reports.branches_left(tasks, self._root):
            self._emit(Notice(branches))
        if all(task.state == "done" for task in tasks):
            return "done"
        text, reasons, go_on = task_reports.summarize_list(tasks, self._root, stopped)
        self._emit(Notice(f"{text} {go_on}", "warning"))
        if stopped == "interrupted":
            return "interrupted"
        if any(task.state == "failed" for task in tasks):
            self.failure = CrushpyError(f"{text} {reasons}", go_on)
            return "error"
        return "limit"


async def work_on_task(
    subagents: Subagents,
    reports: task_reports.TaskReports,
    spec: TaskSpec,
    monitor: task_reports.TaskMonitor,
    workspace: TaskWorkspace | None = None,
    attempt: FleetAttempt | None = None,
) -> FinishedTask:
    """Runs one task with the reports it needs, in a workspace of its own if it has one. Raises ToolError."""
    order = Delegation(await reports.prompt_for(spec), spec.read_only, spec.model, agent=spec.agent)
    async with workspace or nullcontext():
        return await subagents.work(
            order,
            monitor,
            title=task_reports.task_title(spec),
            limits=spec.limits,
            workspace=workspace,
            session_id=monitor.task.session_id,
            attempt=attempt,
        )


def _listed(spec: TaskListSpec) -> str:
    lines: list[str] = []
    for number, task in enumerate(spec.tasks, 1):
        name = f"{task.name}: " if task_reports.is_named(ListedTask(number, task.name)) else ""
        lines.append(f"{number}. {name}{task.prompt}")
    return "\n".join(lines)


class TaskListService:
    """The task list of a conversation, for its front ends."""

    def __init__(self, runtime: Runtime, run_slot: RunSlot) -> None:
        self._runtime, self._run_slot = runtime, run_slot
        self.store = runtime.scope.services.store

    async def work_through(
        self, spec: TaskListSpec, parallel: int = 1, fleet: TaskFleet | None = None
    ) -> TurnStatus:
        """Works through a list in a new conversation, each task in its own session."""
        run = TaskListRun(self._runtime, fleet)
        return await self._run(run, run.begin(spec, parallel))

    async def resume(self, parallel: int | None = None, fleet: TaskFleet | None = None) -> TurnStatus:
        """Continues the list of this conversation; on the `fleet` if it was begun there."""
        run = TaskListRun(self._runtime, fleet)
        return await self._run(run, run.resume(parallel))

    async def work_on(
        self,
        listed: StoredTaskList,
        monitor: task_reports.TaskMonitor,
        cwd: Path,
        spent: Spent,
        attempt: FleetAttempt,
    ) -> FinishedTask:
        """Runs one task of a stored list in the folder `cwd`, for a worker of a fleet. Raises ToolError."""
        runtime, whole = self._runtime, msgspec.json.decode(listed.orders, type=TaskListSpec)
        reports = task_reports.TaskReports(whole, runtime.subagents.format_report)
        await reports.load(self.store, listed.tasks)
        runtime.subagents.spent = spent
        spec, workspace = whole.tasks[monitor.task.number - 1], runtime.open_workspace(cwd)
        return await work_on_task(runtime.subagents, reports, spec, monitor, workspace, attempt)

    async def unfinished(self) -> tuple[ListedTask, ...]:
        """All tasks of this conversation's list if some are not done; else none."""
        listed = await self.store.tasks.load_list(self._runtime.scope.session.info.root_id)
        tasks = listed.tasks if listed else ()
        if all(task.state == "done" for task in tasks):
            return ()
        if self._run_slot.busy:
            return tasks
        return tuple(
            msgspec.structs.replace(task, state="interrupted") if task.state == "running" else task
            for task in tasks
        )

    async def _run(self, run: TaskListRun, work: Coroutine[Any, Any, TurnStatus]) -> TurnStatus:
        async def until_done() -> TurnStatus:
            try:
                return await work
            finally:
                self._run_slot.failure = run.failure
                self._run_slot.finish()

        return await asyncio.shield(self._run_slot.start(until_done()))
