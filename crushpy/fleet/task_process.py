"""The process of a task on a worker: forked with everything imported, ended with the worker."""

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.errors import CrushpyError
from crushpy.core.events import ApprovalNeeded, Event
from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.core.paths import Paths, private_dir
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.subagents import ENDS, FinishedTask
from crushpy.engine.agents.task_list_service import TASK_STATES
from crushpy.engine.agents.task_reports import TaskMonitor
from crushpy.engine.agents.task_spec import FleetTerms, TaskListSpec
from crushpy.engine.approvals import Answer
from crushpy.engine.conversation import Conversation
from crushpy.engine.session.session import title_of
from crushpy.engine.turn.limits import Spent
from crushpy.fleet.git_bundles import TaskCheckout, cached_base, fill_cache, require_safe_names
from crushpy.security.private_files import locked
from crushpy.security.sanitize import one_line
from crushpy.storage.fleet_store import BASE_BUNDLE, ClaimLost, FleetTask, step_name
from crushpy.storage.records import StorageError, StoredTaskList
from crushpy.storage.store import Store
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools
from crushpy.util.spawn import spawn

POLL_S = 2.0
"""How often the store is asked about running tasks; also the heartbeat."""
SERVER_ATTEMPTS = 30
MAX_REASON_CHARS = 300
PRELOADED = (
    "crushpy.storage.postgres_database",
    "crushpy.llm.http_provider",
    "crushpy.permissions.sandboxed_policy",
)
"""Modules that every task needs and that would otherwise be imported while it runs."""


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
        await TaskRun(order, listed, row, checkout, end).run(cwd, spec.fleet)
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
        row: FleetTask,
        checkout: TaskCheckout,
        end: Callable[[str], None],
    ) -> None:
        """`end`: ends the process."""
        self._order, self._listed, self._checkout, self._end = order, listed, checkout, end
        self._prompts: list[str] = []
        self._question, self._answer = row.question, row.answer
        # Stored before the session exists: whatever happens in it, the next attempt finds it.
        task = msgspec.structs.replace(row.task, session_id=row.task.session_id or new_id())
        self._monitor = TaskMonitor(task, len(listed.tasks), lambda event: None)
        self._spent = Spent()
        self._lock = asyncio.Lock()

    async def run(self, cwd: Path, terms: FleetTerms) -> None:
        order, given = self._order, terms.options
        self._spent = Spent(terms.limits)
        yolo = given.yolo and order.options.accept_yolo
        options = StartOptions(
            session=order.root_id, read_only=True, allow=given.allow, mode=given.mode, yolo=yolo
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
                parked=bool(self._question),
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
        title = f"{spec.name}: {title_of(spec.prompt)}"
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

    async def _steer(self) -> list[str]:
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
        asked = msgspec.json.decode(self._question or "{}", type=dict[str, Any])
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
