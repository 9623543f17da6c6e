"""Hands a list to the fleet and follows it: the submitter's side of `crushpy run --tasks FILE --fleet`."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

import crushpy
from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalNeeded, Event, Notice
from crushpy.core.messages import counted
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.task_reports import some_names
from crushpy.engine.agents.task_spec import FleetTerms, TaskListSpec
from crushpy.engine.agents.task_workspaces import PREFIX, Worktrees
from crushpy.engine.approvals import Answer
from crushpy.fleet.git_bundles import base_ref, fetch_branch, make_base, make_bundle, require_safe_names
from crushpy.fleet.job_queue import JobQueue, dispatch, require_queue
from crushpy.security.sanitize import clean
from crushpy.settings.schema import Settings
from crushpy.storage.fleet_store import BASE_BUNDLE, FleetTask, result_name
from crushpy.storage.location import Location
from crushpy.storage.records import ListedTask
from crushpy.storage.store import Store

POLL_INTERVAL_S = 1.0


class Submitter:
    """Implements the engine's `TaskFleet`."""

    def __init__(
        self, cwd: Path, options: StartOptions, settings: Settings, *, detach: bool, dirty: bool, asks: bool
    ) -> None:
        """`asks`: the user is at a terminal that shows notices, and can answer questions of tasks there."""
        self._cwd, self._options, self._settings = cwd, options, settings
        self._detach, self._dirty, self._asks = detach, dirty, asks
        self._bundle = b""

    def prepare(self, root_id: str, spec: TaskListSpec, model: str) -> tuple[TaskListSpec, list[str]]:
        require_queue(Location(Path("crushpy.db"), self._settings.database_url))
        if spec.fleet is not None:  # resumed: its code is stored
            terms = msgspec.structs.replace(spec.fleet, options=self._options)
            return msgspec.structs.replace(spec, fleet=terms), []
        Worktrees(Path("/nonexistent"), root_id, self._cwd).check("a list on a fleet")
        base = make_base(self._cwd, root_id, dirty=self._dirty)
        self._bundle = make_bundle(
            self._cwd, base_ref(root_id), most=self._settings.fleet.max_bundle_mb * 1_000_000
        )
        warnings: list[str] = []
        if base.files:
            warnings.append(
                f"{counted(len(base.files), 'uncommitted file')} will be sent to the workers "
                f"(--no-dirty sends none): {some_names(base.files)}"
            )
        if base.left_out:
            warnings.append(f"Not sent, because commands may not see them: {some_names(base.left_out)}")
        if any(task.exclusive for task in spec.tasks):
            warnings.append("On a fleet every task that writes has its own worktree, and leaves a branch.")
        tasks = tuple(
            msgspec.structs.replace(task, worktree=task.worktree or task.exclusive) for task in spec.tasks
        )
        terms = FleetTerms(crushpy.__version__, model, base.commit, base.prefix, self._options)
        return msgspec.structs.replace(spec, tasks=tasks, fleet=terms), warnings

    async def publish(self, store: Store, root_id: str, spec: TaskListSpec) -> bool:
        async with JobQueue(store) as queue:
            if self._bundle:
                await store.outputs.save(root_id, BASE_BUNDLE, self._bundle)
                self._bundle = b""
            await store.fleet.publish(root_id, msgspec.json.encode(spec).decode())
            await dispatch(store, queue, root_id, self._settings.fleet.wait)
        return not self._detach

    async def follow(
        self, store: Store, root_id: str, emit: Callable[[Event], None]
    ) -> AsyncIterator[tuple[ListedTask, str]]:
        seen: dict[int, tuple[ListedTask, str]] = {}
        try:
            with TaskQuestions(root_id, self._asks, emit) as questions:
                async with JobQueue(store) as queue:
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
                        if answered := await questions.ask(rows, POLL_INTERVAL_S):
                            await store.fleet.send(root_id, answered[0], answer=answered[1])
        except asyncio.CancelledError:
            await self._interrupted(store, root_id)
            raise

    async def _interrupted(self, store: Store, root_id: str) -> None:
        """Ctrl-C: asks on a terminal whether the tasks go on without us. Otherwise they do."""
        answer = ""
        if sys.stdin.isatty() and sys.stderr.isatty():
            question = "\nStop the tasks of this list as well? [y/N] "
            with suppress(EOFError, asyncio.CancelledError):
                answer = await asyncio.to_thread(input, question)
        if answer.strip().lower().startswith("y"):
            rows = await store.fleet.load(root_id)
            await store.fleet.stop(root_id, [row.task.number for row in rows])
        else:
            print(f"The tasks go on: `crushpy fleet stop {root_id}` stops them.", file=sys.stderr)


class TaskQuestions:
    """Shows what tasks ask for, one after the other. On a terminal y or n answers; keys are not echoed, so
    that they leave the table as it is."""

    def __init__(self, root_id: str, asks: bool, emit: Callable[[Event], None]) -> None:
        self._root_id, self._asks, self._emit = root_id, asks, emit
        with suppress(OSError):  # not the controlling terminal
            self._asks = asks and os.tcgetpgrp(0) == os.getpgrp()  # in the background it would be stopped
        self._asked = ""
        self._modes: list[Any] = []
        self._keys: asyncio.Queue[bytes] = asyncio.Queue()

    def __enter__(self) -> Self:
        if self._asks:
            self._modes = termios.tcgetattr(0)
            tty.setcbreak(0)
            asyncio.get_running_loop().add_reader(0, self._read_key)
        return self

    def __exit__(self, *_: object) -> None:
        if self._asks:
            asyncio.get_running_loop().remove_reader(0)
            termios.tcsetattr(0, termios.TCSADRAIN, self._modes)

    def _read_key(self) -> None:
        if key := os.read(0, 1):
            self._keys.put_nowait(key)
        else:  # the terminal has gone
            asyncio.get_running_loop().remove_reader(0)

    async def ask(self, rows: Sequence[FleetTask], wait_s: float) -> tuple[int, str] | None:
        """Shows the first question and waits that long. Returns the number of the task and the answer."""
        row = next((row for row in rows if row.question and not row.answer), None)
        if row is not None and row.question != self._asked:
            self._asked = row.question
            while not self._keys.empty():  # typed before the question was shown
                self._keys.get_nowait()
            command = f"To allow it: crushpy fleet answer {self._root_id} {row.task.name} once"
            self._emit(
                Notice(f"{describe_question(row)}\n{'Allow it once? y or n' if self._asks else command}")
            )
        if row is None or not self._asks:
            await asyncio.sleep(wait_s)
            return None
        try:
            key = await asyncio.wait_for(self._keys.get(), wait_s)
        except TimeoutError:
            return None
        answer = {b"y": Answer("once"), b"n": Answer("deny")}.get(key.lower())
        return (row.task.number, msgspec.json.encode(answer).decode()) if answer else None


def describe_question(row: FleetTask) -> str:
    """The whole call that a task asks about, what it needs and where it would run."""
    asked = msgspec.json.decode(row.question, type=ApprovalNeeded)
    about = (asked.title or asked.name, asked.says, asked.reason)
    words = [f"{row.task.name} on {row.worker}: {' '.join(filter(None, about))}"]
    for name, value in asked.args.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        words.append(f"  {name}: " + text.replace("\n", "\n    "))
    return clean("\n".join(words))


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
