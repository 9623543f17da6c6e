"""The process of a task on a worker: forked with everything imported, ended with the worker."""

import asyncio
import gc
import logging
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

from crushpy.bootstrap.opening import NOT_ACCEPTED, HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.errors import CrushpyError
from crushpy.core.events import ApprovalNeeded, Event, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.core.paths import Paths, private_dir
from crushpy.core.start_options import StartOptions
from crushpy.engine.agents.subagents import FleetAttempt
from crushpy.engine.agents.task_reports import TaskMonitor, task_title
from crushpy.engine.agents.task_spec import TaskListSpec
from crushpy.engine.approvals import Answer
from crushpy.engine.conversation import Conversation
from crushpy.engine.turn.limits import Spent
from crushpy.fleet.git_bundles import TaskCheckout, cached_base, fill_cache, require_safe_names
from crushpy.security.private_files import locked
from crushpy.security.sanitize import one_line
from crushpy.storage.fleet_store import BASE_BUNDLE, ClaimLost, step_name
from crushpy.storage.records import StorageError, StoredTaskList
from crushpy.storage.store import Store
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

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


class WorkerOptions(Data, frozen=True):
    slots: int = 1
    labels: tuple[str, ...] = ()
    once: bool = False
    grace_s: float = 600.0
    accept_yolo: bool = False
    no_sandbox: bool = False
    accept: tuple[str, ...] = ()
    """Rules for what tasks may do outside their checkouts."""


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
        asyncio.run(TaskRun(order, end).run())
    except ClaimLost:  # another worker has it: nothing is stored from here
        end("")
    except Exception as error:  # also a full disk
        end(error.message if isinstance(error, CrushpyError) else f"{type(error).__name__}: {error}")
    end("")


async def _load_list(store: Store, root_id: str) -> StoredTaskList | None:
    """Waits for a server that is being restarted: opening a database does not."""
    for _ in range(SERVER_ATTEMPTS):
        with suppress(StorageError):
            return await store.tasks.load_list(root_id)
        await asyncio.sleep(POLL_S)
    return await store.tasks.load_list(root_id)


class TaskRun:
    """One attempt at a task. It exchanges news with the store every two seconds and between steps."""

    def __init__(self, order: TaskOrder, end: Callable[[str], None]) -> None:
        """`end`: ends the process."""
        self._order, self._end = order, end
        self._prompts: list[str] = []
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        order, folder = self._order, private_dir(Paths().data_dir / "fleet")
        async with ProjectEnvironment(folder).open_store() as store:
            listed = await _load_list(store, order.root_id)
            row = (await store.fleet.load(order.root_id))[order.number - 1]
            assert listed is not None
            self._listed, spec = listed, msgspec.json.decode(listed.orders, type=TaskListSpec)
            assert spec.fleet is not None
            self._spec = spec.tasks[order.number - 1]
            require_safe_names(order.root_id, self._spec.name, spec.fleet.base)
            place = Paths().worktrees / "fleet" / order.worker / order.root_id
            self._checkout = TaskCheckout(place, order.root_id, self._spec.name, spec.fleet.base)
            await self._check_out(store, folder)
        cwd = Path(os.path.realpath(self._checkout.top / spec.fleet.prefix))
        if not cwd.is_relative_to(os.path.realpath(self._checkout.top)):
            raise CrushpyError(f"the folder {spec.fleet.prefix} of list {order.root_id} is not in its code")
        self._question, self._answer, self._spent = row.question, row.answer, Spent(spec.fleet.limits)
        # Stored before the session exists: whatever happens in it, the next attempt finds it.
        task = msgspec.structs.replace(row.task, session_id=row.task.session_id or new_id())
        self._monitor = TaskMonitor(task, len(spec.tasks), lambda event: None)
        try:
            await self._converse(cwd, spec.fleet.options)
        finally:
            await asyncio.to_thread(self._checkout.remove)

    async def _check_out(self, store: Store, folder: Path) -> None:
        """Makes the checkout as the last step left it."""
        root_id, cache = self._order.root_id, cached_base(folder, self._order.root_id)
        if not cache.exists():
            data = await store.outputs.load(root_id, BASE_BUNDLE)
            if data is None:
                raise CrushpyError(f"the code of list {root_id} is not in the database")
            with locked(folder / f"{root_id}.lock"):
                if not cache.exists():
                    await asyncio.to_thread(fill_cache, folder, root_id, data)
        names = await store.fleet.list_steps(root_id, self._order.number)
        steps = [await store.outputs.load(root_id, name) or b"" for name in names]
        await asyncio.to_thread(self._checkout.create, cache, steps)

    async def _converse(self, cwd: Path, given: StartOptions) -> None:
        order = self._order
        yolo = given.yolo and order.options.accept_yolo
        options = StartOptions(
            session=order.root_id, read_only=True, allow=given.allow, mode=given.mode, yolo=yolo
        )
        flags = options.setting_flags() | ({"sandbox.mode": "off"} if order.options.no_sandbox else {})
        environment = ProjectEnvironment(cwd, flags, copy=True, accepted=order.options.accept)
        additions = HostAdditions(answers=True, origin="fleet")
        conversation = await open_conversation(environment, options, additions)
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
            work.result()
        finally:
            news.cancel()
        await self._finish()
        await conversation.close()

    async def _work(self, conversation: Conversation, cwd: Path) -> None:
        """Works until the task has ended; the monitor knows how."""
        try:
            await self._exchange()  # the limits of the list may be reached
            attempt = FleetAttempt(self._checkpoint, self._steer, bool(self._question))
            tasks = conversation.tasks
            self._monitor.end(await tasks.work_on(self._listed, self._monitor, cwd, self._spent, attempt))
        except asyncio.CancelledError:
            self._monitor.update(state="interrupted", error="interrupted")
        except ToolError as error:
            self._monitor.update(state="failed", error=str(error))

    async def _finish(self) -> None:
        """Stores the end of the task and its branch: accepted once, by the worker that has the claim."""
        left, bundle = await asyncio.to_thread(self._checkout.leave, task_title(self._spec))
        self._monitor.update(branch=left.branch, changes=left.changes)
        await self._fleet.accept(self._order.root_id, self._order.token, self._monitor.task, bundle)

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
        free. Whatever the submitter answers, nothing outside the checkout is asked about: it is denied."""
        if isinstance(event, Notice) and event.level == "warning":
            log.warning("%s of %s: %s", self._spec.name, self._order.root_id, event.text)
        if not isinstance(event, ApprovalNeeded):
            return
        if not event.accesses:  # hooks of the project: only this machine's user accepts them
            refusal = Answer("deny", words=NOT_ACCEPTED)
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
            text = msgspec.json.encode(question).decode()
            await self._store.leases.release_all()
            self._monitor.update(state="waiting")
            await self._fleet.accept(
                self._order.root_id, self._order.token, self._monitor.task, question=text
            )
            await asyncio.to_thread(self._checkout.remove)
        self._end("")
