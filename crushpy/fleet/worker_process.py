"""`crushpy worker`: claims tasks, and runs each in a process of its own that ends with the worker."""

import asyncio
import gc
import logging
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import crushpy
from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import ApprovalNeeded, Event
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, counted
from crushpy.core.paths import Paths, private_dir
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.subagents import ENDS, FinishedTask
from crushpy.engine.agents.task_list_service import TASK_STATES
from crushpy.engine.agents.task_reports import TaskMonitor
from crushpy.engine.agents.task_spec import FleetTerms, TaskListSpec
from crushpy.engine.agents.task_workspaces import erase_folder
from crushpy.engine.approvals import Answer
from crushpy.engine.conversation import Conversation
from crushpy.engine.session.session import title_of
from crushpy.engine.turn.limits import Spent
from crushpy.fleet.git_bundles import TaskCheckout, cached_base, fill_cache, require_safe_names
from crushpy.fleet.job_queue import MAX_LABELS, JobQueue, dispatch, queue_names
from crushpy.llm.errors import ModelError
from crushpy.llm.provider_factory import find_endpoint
from crushpy.security.private_files import locked
from crushpy.security.sanitize import one_line
from crushpy.storage.fleet_store import BASE_BUNDLE, ClaimLost, FleetTask, FleetWorker, step_name
from crushpy.storage.records import ListedTask, StorageError, StoredTaskList
from crushpy.storage.store import Store
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

POLL_S = 2.0
"""How often the store is asked about running tasks; also the heartbeat."""
JANITOR_S = 5.0
KILL_DELAY_S = 10.0
"""Between the request to end and the end of a task's processes."""
RETRY_DELAY_S = 2
OUTAGE_S, STEADY_DELAY_S = 10.0, 15.0


def worker_folder(worker: str) -> str:
    """The name of the folder with its checkouts."""
    return f"fleet-{worker}"


class WorkerOptions(Data, frozen=True):
    slots: int = 1
    labels: tuple[str, ...] = ()
    once: bool = False
    grace_s: float = 600.0
    accept_yolo: bool = False
    no_sandbox: bool = False


class TaskOrder(Data, frozen=True):
    """What a worker sends to a task process, which answers with its id and, if it fails, the reason."""

    root_id: str
    number: int
    token: int
    worker: str
    options: WorkerOptions
    answer: str = ""
    question: str = ""
    """What the last attempt ended at, as JSON."""


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
        """The tokens and processes of running tasks."""
        self._claiming: set[tuple[str, int]] = set()
        self._steady_at = 0.0
        """Not before this time are others declared dead: after an outage all heartbeats are old."""
        self._jobs_run = 0
        self._draining = asyncio.Event()

    def _check(self, options: WorkerOptions) -> None:
        if len(options.labels) > MAX_LABELS:
            raise UsageError(f"A worker has at most {MAX_LABELS} labels.", "Leave some out.")
        if wrong := [label for label in options.labels if "=" not in label or " " in label]:
            raise UsageError(f"--label {wrong[0]!r} is not KEY=VALUE.", "For example: --label gpu=yes")
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
            alive = {worker_folder(worker.name) for worker in await self._store.fleet.list_workers()}
            for folder in Paths().worktrees.glob(worker_folder("*")):
                if folder.name not in alive:  # of a worker that was killed
                    await asyncio.to_thread(erase_folder, folder)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._draining.set)
            self._say(f"Worker {self.me.name}: crushpy {self.me.version}, {counted(self.me.slots, 'slot')}")
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
            elif work.exception() is not None:  # the server was restarted: running tasks went on
                log.warning("the queue was interrupted: %s", work.exception())
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
            for place, (token, process) in list(self._children.items()):
                await self._store.fleet.abandon(*place, token, "")
                self._kill(place, process)
            await asyncio.wait([work])

    # --- one task --------------------------------------------------------------------------------------

    async def _run_job(self, root_id: str, number: int) -> None:
        """A job carries ids only: whether there is anything to do is asked of the store."""
        self._jobs_run += 1
        listed = await self._store.tasks.load_list(root_id)
        spec = msgspec.json.decode(listed.orders, type=TaskListSpec) if listed else None
        if spec is None or spec.fleet is None:
            return
        task = spec.tasks[number - 1]
        if not self._serves(task.work.model or spec.fleet.model):
            await self._store.fleet.mark_queued(root_id, number, queued=False)  # `_clean_up` defers it again
            return
        self._claiming.add((root_id, number))
        try:
            row = await self._store.fleet.claim(root_id, number, self.me.name)
            if row is not None:
                await self._run_task(root_id, row)
        finally:
            self._claiming.discard((root_id, number))
        await dispatch(self._store, self._queue, root_id, self._environment.settings.fleet.wait)

    def _serves(self, model: str) -> bool:
        try:
            find_endpoint(model, self._environment.settings, os.environ)
        except ModelError:
            if model not in self.me.lacks:
                self.me = msgspec.structs.replace(self.me, lacks=(*self.me.lacks, model))
            return False
        return True

    async def _run_task(self, root_id: str, row: FleetTask) -> None:
        place, name = (root_id, row.task.number), row.task.name
        order = TaskOrder(*place, row.token, self.me.name, self._options, row.answer, row.question)
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
            del self._children[place]
            writer.close()
        reason = f"{self.me.name}: {told.strip()}" if told.strip() else ""
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
            with suppress(CrushpyError):  # the server cannot be reached: tried again
                await self._beat()
            if time.monotonic() - began > OUTAGE_S:
                self._steady_at = time.monotonic() + STEADY_DELAY_S

    async def _beat(self) -> None:
        drains, held = await self._store.fleet.beat(self.me)
        if drains:
            self._draining.set()
        for place in held.keys() - self._claiming:  # its end could not be stored
            await self._store.fleet.abandon(*place, held[place], f"{self.me.name} lost the database")
        for place, (token, process) in list(self._children.items()):
            if held.get(place) != token:  # it was stopped, or another worker has it
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
                for root_id in await self._store.fleet.list_active():
                    await dispatch(self._store, self._queue, root_id, self._environment.settings.fleet.wait)
            except Exception as error:  # the queue's own errors are not ours
                log.warning("cleaning up failed: %s", error)


# --- the process of a task -------------------------------------------------------------------------------


SERVER_ATTEMPTS = 30
MAX_REASON_CHARS = 300
PRELOADED = (
    "crushpy.storage.postgres_database",
    "crushpy.llm.http_provider",
    "crushpy.permissions.sandboxed_policy",
    "filelock",
)
"""Modules that every task needs and that would otherwise be imported while it runs."""


def start_forks() -> socket.socket:
    """Starts the process that task processes are forked from, so that each of them begins with everything
    imported: imports take most of the time until the first request. Call it before any thread exists."""
    for name in PRELOADED:
        import_module(name)
    all_tools()
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    try:
        _fork_tasks(theirs)
    finally:
        os._exit(0)


def _fork_tasks(worker: socket.socket) -> None:
    """Forks a process for each task that the worker asks for, until the worker ends."""
    os.setsid()
    os.chdir(private_dir(Paths().data_dir / "fleet"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    gc.freeze()
    while (received := socket.recv_fds(worker, 1, 1))[0]:
        with suppress(ChildProcessError):  # there is none
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        with socket.socket(fileno=received[1][0]) as of_task:
            of_task.set_inheritable(False)
            if not os.fork():
                worker.close()
                _serve(of_task)


def _serve(worker: socket.socket) -> None:
    """Runs the task that the worker names, and ends."""
    os.setsid()
    worker.sendall(b"%d\n" % os.getpid())
    orders = worker.makefile("rb")
    order = msgspec.json.decode(orders.readline(), type=TaskOrder)

    def end_with_worker() -> None:
        orders.read()  # returns however the worker ends
        os.killpg(0, signal.SIGKILL)

    def end(reason: str) -> None:
        worker.sendall(one_line(reason)[:MAX_REASON_CHARS].encode(errors="replace") + b"\n")
        os._exit(0)

    threading.Thread(target=end_with_worker, daemon=True).start()
    try:
        asyncio.run(_run(order, end))
    except ClaimLost:  # another worker has it: nothing is stored from here
        end("")
    except Exception as error:  # also a full disk
        end(error.message if isinstance(error, CrushpyError) else f"{type(error).__name__}: {error}")
    end("")


async def _run(order: TaskOrder, end: Callable[[str], None]) -> None:
    folder = private_dir(Paths().data_dir / "fleet")
    store = ProjectEnvironment(folder).store()
    try:
        listed = await _load_list(store, order.root_id)
        row = (await store.fleet.load(order.root_id))[order.number - 1]
        assert listed is not None
        spec = msgspec.json.decode(listed.orders, type=TaskListSpec)
        assert spec.fleet is not None
        name = spec.tasks[order.number - 1].name
        require_safe_names(order.root_id, name, spec.fleet.base)
        place = Paths().worktrees / worker_folder(order.worker) / order.root_id
        checkout = TaskCheckout(place, order.root_id, name, spec.fleet.base)
        await _check_out(store, folder, order, checkout)
    finally:
        await store.close()
    cwd = Path(os.path.realpath(checkout.top / spec.fleet.prefix))
    if not cwd.is_relative_to(os.path.realpath(checkout.top)):
        raise CrushpyError(f"the folder {spec.fleet.prefix} of list {order.root_id} is not in its code")
    try:
        await TaskRun(order, listed, row.task, checkout, end).run(cwd, spec.fleet)
    finally:
        await asyncio.to_thread(checkout.remove)


async def _load_list(store: Store, root_id: str) -> StoredTaskList | None:
    """Waits for a server that is being restarted: opening a database does not."""
    for _ in range(SERVER_ATTEMPTS):
        with suppress(StorageError):
            return await store.tasks.load_list(root_id)
        await asyncio.sleep(POLL_S)
    return await store.tasks.load_list(root_id)


async def _check_out(store: Store, folder: Path, order: TaskOrder, checkout: TaskCheckout) -> None:
    """Makes the checkout as the last step left it."""
    root_id, cache = order.root_id, cached_base(folder, order.root_id)
    if not cache.exists():
        data = await store.outputs.load(root_id, BASE_BUNDLE)
        if data is None:
            raise CrushpyError(f"the code of list {root_id} is not in the database")
        with locked(folder / f"{root_id}.lock"):
            if not cache.exists():
                await asyncio.to_thread(fill_cache, folder, root_id, data)
    names = await store.fleet.list_steps(root_id, order.number)
    steps = [await store.outputs.load(root_id, name) or b"" for name in names]
    await asyncio.to_thread(checkout.create, cache, steps)


class TaskRun:
    """One attempt at a task. It exchanges news with the store every two seconds and between steps."""

    def __init__(
        self,
        order: TaskOrder,
        listed: StoredTaskList,
        task: ListedTask,
        checkout: TaskCheckout,
        end: Callable[[str], None],
    ) -> None:
        """`end`: ends the process."""
        self._order, self._listed, self._checkout, self._end = order, listed, checkout, end
        self._prompts: list[str] = []
        self._answer = order.answer
        # Stored before the session exists: whatever happens in it, the next attempt finds it.
        task = msgspec.structs.replace(task, session_id=task.session_id or new_id())
        self._monitor = TaskMonitor(task, len(listed.tasks), lambda event: None)
        self._spent = Spent()
        self._lock = asyncio.Lock()

    async def run(self, cwd: Path, terms: FleetTerms) -> None:
        order, limits = self._order, terms.limits
        self._spent = Spent(limits)
        options = StartOptions(
            session=order.root_id,
            read_only=True,
            allow=terms.allow,
            mode=terms.mode,
            yolo=terms.yolo and order.options.accept_yolo,
        )
        flags = options.setting_flags() | ({"sandbox.mode": "off"} if order.options.no_sandbox else {})
        environment = ProjectEnvironment(cwd, flags, copy=True)
        conversation = await open_conversation(environment, options, HostAdditions(answers=True))
        self._store = conversation.tasks.store
        self._fleet = self._store.fleet
        conversation.subscribe(lambda event: self._handle_question(conversation, event))
        work = spawn(self._work(conversation, cwd))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        news = spawn(self._exchange_regularly())
        try:
            ended, _ = await asyncio.wait([work, news], return_when=asyncio.FIRST_COMPLETED)
            if work not in ended:  # the claim is lost
                news.result()
            task = work.result()
        finally:
            news.cancel()
        await self._finish(task)
        await conversation.close()

    async def _work(self, conversation: Conversation, cwd: Path) -> FinishedTask | str:
        """The task's end; in words if it has none."""
        try:
            await self._exchange()  # the limits of the list may be reached
            return await conversation.tasks.work_on(
                self._listed,
                self._order.number,
                self._monitor,
                cwd,
                spent=self._spent,
                checkpoint=self._checkpoint,
                parked=bool(self._order.question),
                steer=self._steer,
            )
        except asyncio.CancelledError:
            return "interrupted"
        except ToolError as error:
            return str(error)

    async def _finish(self, task: FinishedTask | str) -> None:
        """Stores the end of the task and its branch: accepted once, by the worker that has the claim."""
        monitor = self._monitor
        if isinstance(task, str):
            monitor.update(state="interrupted" if task == "interrupted" else "failed", error=task)
        else:
            state = TASK_STATES.get(task.status, "failed")
            reason = task.failure.message if task.failure else ENDS.get(task.status, task.status)
            monitor.update(state=state, error="" if state == "done" else reason)
            if state == "done":
                monitor.update(result_id=task.result.id)
        spec = msgspec.json.decode(self._listed.orders, type=TaskListSpec).tasks[self._order.number - 1]
        title = f"{spec.name}: {title_of(spec.work.prompt)}"
        left, bundle = await asyncio.to_thread(self._checkout.leave, title)
        monitor.update(branch=left.branch, changes=left.changes)
        await self._fleet.accept(self._order.root_id, self._order.token, monitor.task, bundle)

    # --- between steps -----------------------------------------------------------------------------------

    async def _checkpoint(self) -> Callable[[], None] | None:
        """What a call changed, stored in the transaction of its result."""
        data = await asyncio.to_thread(self._checkout.checkpoint)
        if not data:
            return None
        name = step_name(self._order.number, self._checkout.steps)
        return partial(self._fleet.write_bundle, self._order.root_id, name, data)

    async def _steer(self, spent: Spent) -> list[str]:
        await self._exchange()
        prompts, self._prompts = self._prompts, []
        return prompts

    async def _exchange(self) -> None:
        """Stores the progress; learns what the whole list has spent, and what the user says."""
        async with self._lock:
            order = self._order
            task = msgspec.structs.replace(self._monitor.task, state="running")
            line = self._monitor.line
            steps, used, prompts = await self._fleet.step(order.root_id, order.token, task, line)
            self._spent.steps, self._spent.used = steps, used
            self._prompts += prompts

    async def _exchange_regularly(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            with suppress(StorageError):  # the turn itself waits for the database
                await self._exchange()

    # --- questions ---------------------------------------------------------------------------------------

    def _handle_question(self, conversation: Conversation, event: Event) -> None:
        """Answers the question that the user has answered; parks the task at any other, so that its slot is
        free."""
        if not isinstance(event, ApprovalNeeded):
            return
        if not event.accesses or any(access.reason for access in event.accesses):
            # Hooks and servers of the project, and changed tools of a server: only this machine's user
            # accepts them, whatever the submitter answers.
            refusal = Answer("deny", words="the user of this worker has not accepted it")
            asyncio.get_running_loop().call_soon(conversation.answer, event.id, refusal)
            return
        asked = msgspec.json.decode(self._order.question or "{}", type=dict[str, Any])
        same = (asked.get("name"), asked.get("args")) == (event.name, msgspec.to_builtins(event.args))
        if self._answer and same:
            answer, self._answer = msgspec.json.decode(self._answer, type=Answer), ""
            asyncio.get_running_loop().call_soon(conversation.answer, event.id, answer)
        else:
            spawn(self._park(event))

    async def _park(self, question: ApprovalNeeded) -> None:
        async with self._lock:
            order = self._order
            text = msgspec.json.encode(question).decode()
            await self._store.leases.release_all()
            await self._fleet.park(order.root_id, order.token, self._monitor.task, text)
            await asyncio.to_thread(self._checkout.remove)
        self._end("")
