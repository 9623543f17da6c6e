"""Hands a list to the fleet and follows it: the submitter's side of `crushpy run --tasks FILE --fleet`."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

import crushpy
from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalNeeded, Emit, Notice
from crushpy.core.messages import counted
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.task_reports import some_names
from crushpy.engine.agents.task_spec import ENDED, FleetTerms, TaskListSpec
from crushpy.engine.agents.task_workspaces import PREFIX, Worktrees, git_succeeds, run_git
from crushpy.engine.approvals import Answer
from crushpy.fleet.git_bundles import (
    base_ref,
    fetch_branch,
    fetch_commit,
    make_base,
    make_bundle,
    require_safe_names,
)
from crushpy.fleet.job_queue import JobQueue, dispatch, require_queue
from crushpy.permissions.path_rules import describe_ignored
from crushpy.permissions.rules import RuleSet
from crushpy.security.sanitize import clean
from crushpy.settings.schema import Settings
from crushpy.storage.fleet_store import BASE_BUNDLE, FleetTask, result_name
from crushpy.storage.location import Location
from crushpy.storage.records import ListedTask
from crushpy.storage.store import Store
from crushpy.util.terminal_modes import read_single_keys, restore_modes

POLL_INTERVAL_S = 1.0
Keys = asyncio.Queue[bytes]


class Submitter:
    """Implements the engine's `TaskFleet`."""

    def __init__(
        self, cwd: Path, options: StartOptions, settings: Settings, *, detach: bool, dirty: bool, asks: bool
    ) -> None:
        """`asks`: the user is at a terminal that shows notices, and can answer questions of tasks there."""
        self._cwd, self._options, self._settings = cwd, options, settings
        self._detach, self._dirty, self._asks = detach, dirty, asks
        self._bundle, self._asked = b"", dict[int, tuple[str, float]]()
        """The questions that were shown, and when, by the task's number."""
        self.unanswered = False

    def prepare(self, root_id: str, spec: TaskListSpec, model: str) -> tuple[TaskListSpec, list[str]]:
        require_queue(Location(Path("crushpy.db"), self._settings.database_url))
        allow = RuleSet.from_strings(self._options.allow).allow
        # The place of a checkout is not known here.
        ignored = describe_ignored(RuleSet(confined="on a worker").grant(*allow), Path("/nonexistent"))
        warnings = [ignored] if ignored else []
        if spec.fleet is not None:  # resumed: its code is stored
            terms = msgspec.structs.replace(spec.fleet, options=self._options)
            return msgspec.structs.replace(spec, fleet=terms), warnings
        Worktrees(Path("/nonexistent"), root_id, self._cwd).check("a list on a fleet")
        base = make_base(self._cwd, root_id, dirty=self._dirty)
        self._bundle = make_bundle(
            self._cwd, base_ref(root_id), most=self._settings.fleet.max_bundle_mb * 1_000_000
        )
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

    async def follow(
        self, store: Store, root_id: str, spec: TaskListSpec, emit: Emit
    ) -> AsyncIterator[tuple[ListedTask, str]]:
        self._emit, seen = emit, dict[int, tuple[ListedTask, str]]()
        try:
            with read_keys(self._asks and not self._detach) as keys:
                async with JobQueue(store) as queue:
                    if self._bundle:
                        await store.outputs.save(root_id, BASE_BUNDLE, self._bundle)
                    await store.fleet.publish(root_id, msgspec.json.encode(spec).decode())
                    while True:
                        rows = await dispatch(store, queue, root_id, self._settings.fleet.wait)
                        for row in rows:
                            now = (row.task, describe_row(row))
                            if seen.get(row.task.number) != now:
                                seen[row.task.number] = now
                                if row.task.state == "done" and row.task.branch:
                                    said = await fetch_result(store, root_id, row.task, self._cwd)
                                    if said:
                                        emit(Notice(said))
                                yield now
                        if self._detach:
                            later = f"`crushpy run --resume {root_id}` follows it."
                            emit(Notice(f"List {root_id} runs on the fleet; {later}"))
                        if self._detach or all(row.task.state in ENDED for row in rows):
                            return
                        await self._ask(store, root_id, rows, keys)
        except asyncio.CancelledError:
            await self._interrupted(store, root_id)
            raise

    async def _ask(self, store: Store, root_id: str, rows: Sequence[FleetTask], keys: Keys | None) -> None:
        """Shows questions of tasks and waits a while: on a terminal the first one, which y or n answers;
        without one all, and each is denied after `fleet.wait` seconds."""
        asking = [row for row in rows if row.question and not row.answer][: 1 if keys else None]
        limit = self._settings.fleet.wait
        for row in asking:
            shown, since = self._asked.get(row.task.number, ("", 0.0))
            if row.question != shown:
                self._asked[row.task.number] = row.question, time.monotonic()
                while keys and not keys.empty():  # typed before the question was shown
                    keys.get_nowait()
                command = f"To allow it: crushpy fleet answer {root_id} {row.task.name} once"
                self._emit(
                    Notice(f"{describe_question(row)}\n{'Allow it once? y or n' if keys else command}")
                )
            elif keys is None and time.monotonic() - since > limit:
                self.unanswered = True
                words = f"No answer came within {limit} s (fleet.wait). Go on without it."
                await store.fleet.answer(root_id, row.task.number, Answer("deny", words))
        if not asking or keys is None:
            await asyncio.sleep(POLL_INTERVAL_S)
            return
        with suppress(TimeoutError):
            key = await asyncio.wait_for(keys.get(), POLL_INTERVAL_S)
            if answer := {b"y": Answer("once"), b"n": Answer("deny")}.get(key.lower()):
                await store.fleet.answer(root_id, asking[0].task.number, answer)

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


@contextmanager
def read_keys(asks: bool) -> Generator[Keys | None]:
    """The keys of the terminal, not echoed, so that they leave the table as it is; None if the user cannot
    answer there."""
    with suppress(OSError):  # not the controlling terminal
        asks = asks and os.tcgetpgrp(0) == os.getpgrp()  # in the background it would be stopped
    if not asks:
        yield None
        return
    loop, keys = asyncio.get_running_loop(), Keys()

    def read() -> None:
        if key := os.read(0, 1):
            keys.put_nowait(key)
        else:  # the terminal has gone
            loop.remove_reader(0)

    modes = read_single_keys(0)
    loop.add_reader(0, read)
    try:
        yield keys
    finally:
        loop.remove_reader(0)
        restore_modes(0, modes)


def describe_question(row: FleetTask) -> str:
    """The whole call that a task asks about, what it needs and where it would run."""
    asked = msgspec.json.decode(row.question, type=ApprovalNeeded)
    about = (asked.title or asked.name, asked.reason)
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


async def fetch_result(store: Store, root_id: str, task: ListedTask, cwd: Path) -> str:
    """Brings the branch of a task into the repository at `cwd`. Returns a note on an earlier one."""
    require_safe_names(root_id, task.name)
    branch = f"{PREFIX}/{root_id}/{task.name}"
    data = await store.outputs.load(root_id, result_name(task.number))
    if data is None:
        raise UsageError(f"The branch of {task.name} is not in the database.", "The task may still run.")
    base = base_ref(root_id)
    if not git_succeeds(cwd, "rev-parse", "--verify", "--quiet", base):  # another clone
        code = await store.outputs.load(root_id, BASE_BUNDLE) or b""
        commit = await asyncio.to_thread(fetch_commit, cwd, base, code)
        run_git(cwd, "update-ref", base, commit)
    earlier = await asyncio.to_thread(fetch_branch, cwd, branch, data)
    return f"The branch of an earlier attempt at {task.name} is now {earlier}." if earlier else ""
