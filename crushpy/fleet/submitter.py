"""Hands a list to the fleet and follows it: the submitter's side of `crushpy run --tasks FILE --fleet`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

import crushpy
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.task_spec import FleetTerms, TaskListSpec, TaskSpec
from crushpy.engine.agents.task_workspaces import PREFIX, Worktrees
from crushpy.engine.turn.limits import Limits
from crushpy.fleet.dispatch import dispatch
from crushpy.fleet.git_bundles import base_ref, fetch_branch, make_base, make_bundle, require_safe_names
from crushpy.fleet.job_queue import JobQueue, require_queue
from crushpy.settings.schema import Settings
from crushpy.storage.fleet_store import BASE_BUNDLE, FleetTask, result_name
from crushpy.storage.location import Location
from crushpy.storage.records import ListedTask
from crushpy.storage.store import Store

POLL_INTERVAL_S = 1.0
MAX_LISTED = 20
"""Uncommitted files that are listed by name."""


class Submitter:
    """Implements the engine's `TaskFleet`."""

    def __init__(
        self, cwd: Path, options: StartOptions, settings: Settings, *, detach: bool, dirty: bool
    ) -> None:
        self._cwd, self._options, self._settings = cwd, options, settings
        self._detach, self._dirty = detach, dirty
        self._bundle = b""

    def prepare(self, root_id: str, spec: TaskListSpec, model: str) -> tuple[TaskListSpec, list[str]]:
        require_queue(Location(Path("crushpy.db"), self._settings.database_url))
        options = self._options
        limits = Limits(options.max_steps, options.max_tokens, options.max_cost)
        rights: dict[str, Any] = {
            "allow": options.allow,
            "mode": options.mode,
            "yolo": options.yolo,
            "limits": limits,
        }
        if spec.fleet is not None:  # resumed: its code is stored
            return msgspec.structs.replace(spec, fleet=msgspec.structs.replace(spec.fleet, **rights)), []
        Worktrees(Path("/nonexistent"), root_id, self._cwd).check("a list on a fleet")
        base = make_base(self._cwd, root_id, dirty=self._dirty)
        self._bundle = make_bundle(
            self._cwd, base_ref(root_id), most=self._settings.fleet.max_bundle_mb * 1_000_000
        )
        warnings: list[str] = []
        if base.files:
            warnings.append(
                f"{counted(len(base.files), 'uncommitted file')} will be sent to the workers "
                f"(--no-dirty sends none): {_some(base.files)}"
            )
        if base.left_out:
            warnings.append(f"Not sent, because commands may not see them: {_some(base.left_out)}")
        if any(task.exclusive for task in spec.tasks):
            warnings.append("On a fleet every task that writes has its own worktree, and leaves a branch.")
        tasks = tuple(map(_with_worktree, spec.tasks))
        terms = FleetTerms(crushpy.__version__, model, base.commit, base.prefix, **rights)
        return msgspec.structs.replace(spec, tasks=tasks, fleet=terms), warnings

    async def publish(self, store: Store, root_id: str, spec: TaskListSpec) -> bool:
        queue = JobQueue(store)
        await queue.open()
        try:
            if self._bundle:
                await store.fleet.save_bundle(root_id, BASE_BUNDLE, self._bundle)
                self._bundle = b""
            await store.fleet.publish(root_id, msgspec.json.encode(spec).decode())
            await dispatch(store, queue, root_id, self._settings.fleet.wait)
        finally:
            await queue.close()
        return not self._detach

    async def follow(self, store: Store, root_id: str) -> AsyncIterator[tuple[ListedTask, str]]:
        queue = JobQueue(store)
        await queue.open()
        seen: dict[int, tuple[ListedTask, str]] = {}
        try:
            while True:
                rows = await dispatch(store, queue, root_id, self._settings.fleet.wait)
                for row in rows:
                    now = (row.task, describe_row(row))
                    if seen.get(row.task.number) != now:
                        seen[row.task.number] = now
                        if row.task.state == "done" and row.task.branch:
                            await fetch_result(store, root_id, row.task, self._cwd)
                        yield now
                if all(row.task.state not in ("waiting", "running") for row in rows):
                    return
                await asyncio.sleep(POLL_INTERVAL_S)
        except asyncio.CancelledError:
            await self._interrupted(store, root_id)
            raise
        finally:
            await queue.close()

    async def _interrupted(self, store: Store, root_id: str) -> None:
        """Ctrl-C: asks on a terminal whether the tasks go on without us. Otherwise they do."""
        answer = ""
        if sys.stdin.isatty() and sys.stderr.isatty():
            question = "\nStop the tasks of this list as well? [y/N] "
            try:
                answer = await asyncio.to_thread(lambda: input(question))
            except (EOFError, asyncio.CancelledError):
                answer = ""
        if answer.strip().lower().startswith("y"):
            rows = await store.fleet.load(root_id)
            await store.fleet.stop(root_id, [row.task.number for row in rows])
        else:
            print(f"The tasks go on: `crushpy fleet stop {root_id}` stops them.", file=sys.stderr)


def describe_row(row: FleetTask) -> str:
    """What a task does or waits for, in a line."""
    if row.stuck:
        return f"waiting: no worker has {row.stuck}"
    if row.question and not row.answer:
        return "waiting: it asks for permission; see `crushpy fleet answer`"
    if row.deaths and row.task.state == "waiting":
        return f"starting again: {row.deaths[-1]}"
    return row.line


async def fetch_result(store: Store, root_id: str, task: ListedTask, cwd: Path) -> None:
    """Brings the branch of a task into the repository at `cwd`."""
    require_safe_names(root_id, task.name)
    branch = f"{PREFIX}/{root_id}/{task.name}"
    data = await store.outputs.load(root_id, result_name(task.number))
    if data is None:
        raise UsageError(f"The branch of {task.name} is not in the database.", "The task may still run.")
    await asyncio.to_thread(fetch_branch, cwd, branch, data)


def _with_worktree(task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(task, worktree=True) if task.exclusive else task


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
