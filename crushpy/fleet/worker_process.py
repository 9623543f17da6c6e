"""`crushpy worker`: claims tasks, and runs each in a process of its own that ends with the worker."""

import asyncio
import logging
import os
import platform
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

import msgspec

import crushpy
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import counted
from crushpy.core.paths import Paths, private_dir
from crushpy.engine.agents.task_spec import TaskListSpec, find_wrong_label
from crushpy.engine.agents.task_workspaces import erase_folder
from crushpy.fleet.job_queue import MAX_LABELS, JobQueue, dispatch, queue_names
from crushpy.fleet.task_process import POLL_S, TaskOrder, WorkerOptions
from crushpy.llm.errors import ModelError
from crushpy.llm.provider_factory import find_endpoint
from crushpy.permissions.rules import RuleSet
from crushpy.security.sanitize import one_line
from crushpy.storage.fleet_store import FleetTask, FleetWorker
from crushpy.tools.registry import tool_table
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

JANITOR_S = 5.0
KILL_DELAY_S = 10.0
"""Between the request to end and the end of a task's processes."""
RETRY_DELAY_S = 2
OUTAGE_S, STEADY_DELAY_S = 10.0, 15.0


class Worker:
    """One worker, for as long as its process lives."""

    def __init__(self, options: WorkerOptions, say: Callable[[str], None], forks: socket.socket) -> None:
        """`forks`: the socket of the process that forks task processes."""
        self._options, self._say, self._forks = options, say, forks
        self._environment = ProjectEnvironment(private_dir(Paths().data_dir / "fleet"))
        self._check(options)
        self._store = self._environment.store()
        self._queue = JobQueue(self._store, self._run_job)
        name = f"{platform.node()}-{new_id()[-4:]}"
        self.me = FleetWorker(name, platform.node(), crushpy.__version__, options.labels, options.slots)
        self._children: dict[tuple[str, int], tuple[int, int]] = {}
        """The tokens and processes of running tasks; 0 until they are known."""
        self._steady_at = 0.0
        """Not before this time are others declared dead: after an outage all heartbeats are old."""
        self._jobs_run = 0
        self._draining = asyncio.Event()
        self._parking = False
        """Running tasks are ended, and continue on other workers."""

        self._lost = False
        """The last heartbeat could not be stored."""

    def _report(self, what: str, error: BaseException | None) -> None:
        """One line for each failure; the log has its traceback."""
        log.warning(what, exc_info=error)
        self._say(one_line(f"{what}: {error}"))

    def _check(self, options: WorkerOptions) -> None:
        if len(options.labels) > MAX_LABELS:
            raise UsageError(f"A worker has at most {MAX_LABELS} labels.", "Leave some out.")
        if (wrong := find_wrong_label(options.labels)) is not None:
            raise UsageError(f"--label {wrong!r} is not KEY=VALUE.", "For example: --label gpu=yes")
        RuleSet.from_strings(options.accept, tools=tool_table())  # raises if one is invalid
        guard = self._environment.guard()
        if not guard.sandbox and not options.no_sandbox:
            why = guard.why_not or "sandbox.mode is off"
            raise UsageError(
                f"No sandbox works here ({why}), so this worker takes no tasks.",
                "Fix it (`crushpy doctor` shows what is missing), or give --no-sandbox: tasks then run with "
                "all rights of this user.",
            )

    async def run(self) -> None:
        """Until it is drained or, with `once`, until there is nothing left to do."""
        async with self._queue:
            await self._beat()
            # The checkouts of workers that were killed, and the code of lists that have ended.
            used = {worker.name for worker in await self._store.fleet.list_workers()}
            used |= {f"{name}.git" for name in await self._store.fleet.list_lists(active=True)}
            places = (Paths().worktrees / "fleet").glob("*"), (Paths().data_dir / "fleet").glob("*.git")
            for folder in chain(*places):
                if folder.name not in used:
                    await asyncio.to_thread(erase_folder, folder)
            loop = asyncio.get_running_loop()
            # The queue leaves the errors of its own tasks to the loop.
            loop.set_exception_handler(lambda _, told: self._report(told["message"], told.get("exception")))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._draining.set)
            self._say(f"Worker {self.me.name}: crushpy {self.me.version}, {counted(self.me.slots, 'slot')}")
            accepted = ", ".join(self._options.accept) or "nothing"
            self._say(f"Outside their checkouts, tasks may use: {accepted} (--accept)")
            helpers = [spawn(self._poll()), spawn(self._clean_up())]
            try:
                await self._work()
            finally:
                for helper in helpers:
                    helper.cancel()
                with suppress(CrushpyError):
                    await self._store.fleet.sign_off(self.me.name)
        await self._store.close()

    async def _work(self) -> None:
        queues = queue_names(self.me.version, self.me.labels)
        while not self._draining.is_set():
            before = self._jobs_run
            work = spawn(self._queue.work(queues, self.me.slots, self.me.name, once=self._options.once))
            stop = spawn(self._draining.wait())
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if self._draining.is_set():
                await self._drain(work)
            elif (error := work.exception()) is not None:  # the server was restarted: running tasks went on
                self._report("The queue was interrupted", error)
                await asyncio.sleep(RETRY_DELAY_S)
            elif self._options.once and self._jobs_run == before:
                return

    async def _drain(self, work: "asyncio.Task[None]") -> None:
        """Takes no new tasks; running ones have some time, then they are parked."""
        self._say(
            f"Worker {self.me.name} takes no more tasks; {counted(len(self._children), 'task')} running."
        )
        work.cancel()
        ended, _ = await asyncio.wait([work], timeout=self._options.grace_s)
        if not ended:
            self._parking = True
            for place, (_, process) in list(self._children.items()):
                if process:
                    self._kill(place, process)
            await asyncio.gather(work, return_exceptions=True)

    # --- one task --------------------------------------------------------------------------------------

    async def _run_job(self, root_id: str, number: int) -> None:
        """A job carries ids only: whether there is anything to do is asked of the store."""
        self._jobs_run += 1
        try:
            await self._run_listed(root_id, number)
        except CrushpyError as error:
            self._report(f"Task {number} of {root_id}", error)
            raise  # the queue tries it again

    async def _run_listed(self, root_id: str, number: int) -> None:
        listed = await self._store.tasks.load_list(root_id)
        spec = msgspec.json.decode(listed.orders, type=TaskListSpec) if listed else None
        if spec is None or spec.fleet is None or (root_id, number) in self._children:
            return
        task = spec.tasks[number - 1]
        if not self._serves(task.model or spec.fleet.model):
            await self._store.fleet.mark(root_id, number, queued=False)  # `_clean_up` defers it again
            return
        self._children[root_id, number] = (0, 0)
        try:
            row = await self._store.fleet.claim(root_id, number, self.me.name)
            if row is not None:
                await self._run_task(root_id, row)
        finally:
            del self._children[root_id, number]
        await dispatch(self._store, self._queue, root_id, self._environment.settings.fleet.wait)

    def _serves(self, model: str) -> bool:
        try:
            find_endpoint(model, self._environment.settings)
        except ModelError:
            if model not in self.me.lacks:
                self.me = msgspec.structs.replace(self.me, lacks=(*self.me.lacks, model))
            return False
        return True

    async def _run_task(self, root_id: str, row: FleetTask) -> None:
        place, name = (root_id, row.task.number), row.task.name
        order = TaskOrder(*place, row.token, self.me.name, self._options)
        self._say(f"{name} of {root_id} started")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._forks, [b"+"], [theirs.fileno()])
            reader, writer = await asyncio.open_connection(sock=ours)
            writer.write(msgspec.json.encode(order) + b"\n")
            process = int(await reader.readline())
        except (OSError, ValueError):
            self._draining.set()
            told = "the process that starts tasks has ended"
        else:
            self._children[place] = (row.token, process)
            told = (await reader.readline()).decode() or "its process was killed"
            self._kill(place, process)
            self._children[place] = (0, 0)
            writer.close()
        reason = f"{self.me.name}: {told.strip()}" if told.strip() and not self._parking else ""
        await self._store.fleet.abandon(*place, row.token, reason)  # unless its end is stored
        self._say(f"{name} of {root_id} ended{f': {reason}' if reason else ''}")

    def _kill(self, place: tuple[str, int], process: int, number: int = signal.SIGKILL) -> None:
        """Signals a task's processes, unless it has ended: the id may be another's by now."""
        if place in self._children and self._children[place][1] == process:
            with suppress(ProcessLookupError, PermissionError):
                (os.killpg if number == signal.SIGKILL else os.kill)(process, number)

    # --- meanwhile -------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(POLL_S)
            try:
                await self._beat()
                self._lost = False
            except CrushpyError as error:  # tried again
                if not self._lost:
                    self._report("The database is lost", error)
                self._lost = True
            if time.monotonic() - began > OUTAGE_S:
                self._steady_at = time.monotonic() + STEADY_DELAY_S

    async def _beat(self) -> None:
        drains, held = await self._store.fleet.beat(self.me)
        if drains:
            self._draining.set()
        for place in held.keys() - self._children.keys():  # its end could not be stored
            await self._store.fleet.abandon(*place, held[place], f"{self.me.name} lost the database")
        for place, (token, process) in list(self._children.items()):
            if process and held.get(place) != token:  # it was stopped, or another worker has it
                self._kill(place, process, signal.SIGTERM)
                asyncio.get_running_loop().call_later(KILL_DELAY_S, self._kill, place, process)

    async def _clean_up(self) -> None:
        """Looks after tasks of dead workers, and lists whose submitter has gone."""
        while True:
            await asyncio.sleep(JANITOR_S)
            with suppress(CrushpyError):
                if time.monotonic() > self._steady_at:
                    await self._store.fleet.reap()
            try:
                await self._queue.drop_stalled()
                for root_id in (await self._store.fleet.list_lists(active=True))[::-1]:  # the oldest first
                    await dispatch(self._store, self._queue, root_id, self._environment.settings.fleet.wait)
            except Exception as error:  # the queue's own errors are not ours
                self._report("Cleaning up failed", error)
