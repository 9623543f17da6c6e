"""`store.fleet`: tasks that run on several machines, their claims, bundles and workers. PostgreSQL only.

A worker claims a task with a token. Every later write of the worker names that token: after another worker
has claimed the task, nothing the first one writes is accepted.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Usage
from crushpy.storage.database import lease_timeout
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import FleetTaskRow
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.record_store import write_output
from crushpy.storage.records import ListedTask
from crushpy.storage.session_rows import from_row, json_text, to_row
from crushpy.storage.storage_thread import Subject, stored, written

WORKER_TIMEOUT_S = min(30.0, lease_timeout() * 2 / 3)
"""A worker without a heartbeat for this time counts as dead."""
QUEUE_SCHEMA = "crushpy_queue"
"""Holds the tables of the job queue."""
_CHANGEABLE = (
    *("token", "worker", "deaths", "queued", "stuck"),
    *("line", "question", "answer", "inbox", "stopped"),
)


class FleetTask(Data, frozen=True):
    """One task of a list on a fleet."""

    task: ListedTask
    token: int
    worker: str
    deaths: tuple[str, ...]
    queued: bool
    stuck: str
    line: str
    question: str
    answer: str
    inbox: tuple[str, ...]
    """Prompts for its next step."""
    stopped: bool
    stuck_s: float
    """For how long no worker can take it."""
    alive: bool
    """A worker that is alive has it."""


class FleetWorker(Data, frozen=True):
    """A worker that is alive."""

    name: str
    host: str
    version: str
    labels: tuple[str, ...]
    slots: int
    lacks: tuple[str, ...] = ()
    draining: bool = False
    running: int = 0
    silent: float = 0.0
    """Seconds since its heartbeat."""


class ClaimLost(UsageError):
    """Another worker has the task now, or it was stopped: this one must end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"task {number} was taken over by another worker", "Nothing is stored from here.")


def require_server(location: Location) -> ServerAddress:
    """The server of a fleet. Raises UsageError if the database is a file."""
    if location.server is None:
        raise UsageError(
            f"A fleet needs a PostgreSQL server: other machines cannot read the file {location.place}.",
            "Set database_url to postgresql://user@host/database; docs/storage.md shows how.",
        )
    return location.server


class FleetStore(Subject):
    # --- lists -----------------------------------------------------------------------------------------

    @written(durable=True)
    def publish(self, root_id: str, orders: str) -> None:
        """Hands a stored list to the fleet. Tasks that ended without success start again."""
        self._db.execute(sql.SET_ORDERS, root=root_id, new_orders=orders)
        self._db.execute(sql.ADD_FLEET_TASKS, root=root_id)
        for listed in self._load(root_id):
            if listed.task.state not in ("done", "running", "waiting") or listed.stopped:
                again = ListedTask(listed.task.number, listed.task.name)
                self._delete_steps(root_id, again.number)
                self._free(root_id, again, "waiting", deaths="[]", stopped=False, question="", answer="")

    def _load(self, root_id: str) -> list[FleetTask]:
        """All tasks of a list, in order; empty if it does not run on a fleet."""
        rows = self._db.execute(sql.LIST_FLEET_TASKS, root=root_id, timeout=WORKER_TIMEOUT_S)
        return list(map(_from_row, rows))

    load = stored(_load)

    @stored
    def list_lists(self, *, active: bool = False) -> list[str]:
        """The lists on the fleet, the latest first; `active`: those that workers have to look after."""
        return self._db.execute(sql.LIST_ACTIVE_LISTS if active else sql.LIST_FLEET_LISTS).scalars()

    @written(durable=True)
    def end_unstarted(self, root_id: str, number: int, state: str, error: str) -> None:
        """Ends a task that waits, unless a worker has it meanwhile."""
        one = self._one(root_id, number)
        if one.task.state == "waiting" and not one.token:
            self._free(root_id, msgspec.structs.replace(one.task, error=error), state)

    # --- claims ----------------------------------------------------------------------------------------

    @written(durable=True)
    def claim(self, root_id: str, number: int, worker: str) -> FleetTask | None:
        """Gives a task to a worker; None if it has ended, waits for an answer, or another worker has it, also
        a dead one: `reap` frees it."""
        one = self._one(root_id, number)
        waits = bool(one.question) and not one.answer
        if one.task.state != "waiting" or one.token or one.stopped or waits:
            return None
        token = self._db.execute(sql.NEW_CLAIM).scalar()
        self._set(root_id, number, token=token, worker=worker, queued=False, stuck="")
        self._save(root_id, msgspec.structs.replace(one.task, state="running"))
        return self._one(root_id, number)

    @written(durable=True)
    def abandon(self, root_id: str, number: int, token: int, reason: str) -> None:
        """Frees a claim. With a reason it counts as a dead attempt; else the task is parked."""
        one = self._one(root_id, number)
        if one.token == token and reason:
            self._count_death(root_id, one, reason)
        elif one.token == token:
            self._free(root_id, one.task, "interrupted" if one.stopped else "waiting")

    @stored
    def reap(self) -> None:
        """Counts the attempts of dead workers, and frees their tasks."""
        dead = self._db.execute(sql.LIST_DEAD_CLAIMS, timeout=WORKER_TIMEOUT_S).all()
        for row in dead:
            with self._db.transaction(durable=True, session=row.root_id):
                one = self._one(row.root_id, row.number)
                if one.token and not one.alive:
                    self._count_death(row.root_id, one, f"{one.worker} was lost")

    def _count_death(self, root_id: str, one: FleetTask, reason: str) -> None:
        """Inside a transaction."""
        deaths = (*one.deaths, reason)
        orders = self._db.execute(sql.FIND_TASK_LIST, root=root_id).one().orders
        tasks = msgspec.json.decode(orders)["tasks"]
        state = "waiting" if len(deaths) < tasks[one.task.number - 1].get("retries", 3) else "failed"
        error = f"{len(deaths)} attempts ended without a result: {'; '.join(deaths)}"
        task = msgspec.structs.replace(one.task, error=error if state == "failed" else "")
        self._free(root_id, task, "interrupted" if one.stopped else state, deaths=json_text(deaths))

    def _free(self, root_id: str, task: ListedTask, state: str, **changes: Any) -> None:
        changes |= {} if state == "waiting" else {"question": "", "answer": ""}
        self._set(root_id, task.number, token=0, queued=False, stuck="", **changes)
        self._save(root_id, msgspec.structs.replace(task, state=state))

    def _claimed(self, root_id: str, number: int, token: int) -> FleetTask:
        one = self._one(root_id, number)
        if one.token != token:
            raise ClaimLost(number)
        return one

    # --- a running task --------------------------------------------------------------------------------

    @written()
    def step(
        self, root_id: str, token: int, task: ListedTask, line: str
    ) -> tuple[int, Usage, tuple[str, ...]]:
        """Stores the progress of a task. Returns the steps and the usage of the whole list, and the prompts
        for this task. `ClaimLost`."""
        inbox = self._claimed(root_id, task.number, token).inbox
        self._save(root_id, task)
        self._set(root_id, task.number, line=line, inbox="[]", answer="", question="")
        total = self._db.execute(sql.SUM_LISTED_TASKS, root=root_id).one()
        return total.steps, Usage(total.tokens, cost=total.cost), inbox

    @written(durable=True)
    def accept(
        self, root_id: str, token: int, task: ListedTask, bundle: bytes = b"", question: str = ""
    ) -> None:
        """Stores how a task ended with the bundle of its branch: both or neither, and once. With a question
        it waits: its slot is free, and the answer starts it again. `ClaimLost`."""
        if self._claimed(root_id, task.number, token).stopped:
            task = msgspec.structs.replace(task, state="interrupted", error="stopped")
        if task.state != "waiting":
            self._delete_steps(root_id, task.number)
        if bundle:
            write_output(self._db, root_id, result_name(task.number), bundle)
        self._free(root_id, task, task.state, question=question, answer="")

    @written(durable=True)
    def steer(self, root_id: str, number: int, prompt: str) -> None:
        """A prompt for a task, which it reads between two steps, or when it starts again."""
        self._set(root_id, number, inbox=json_text((*self._one(root_id, number).inbox, prompt)))

    @written(durable=True)
    def answer(self, root_id: str, number: int, answer: Data) -> None:
        """The user's answer to the question of a task: it can start again."""
        self._set(root_id, number, answer=json_text(answer), queued=False)

    @written(durable=True)
    def stop(self, root_id: str, numbers: Sequence[int]) -> None:
        """Stops tasks: those that wait end now, workers end those that run."""
        for number in numbers:
            one = self._one(root_id, number)
            self._set(root_id, number, stopped=one.task.state in ("waiting", "running"))
            if one.task.state == "waiting":
                stopped = msgspec.structs.replace(one.task, error="stopped")
                self._free(root_id, stopped, "interrupted")

    # --- bundles ---------------------------------------------------------------------------------------

    def write_bundle(self, root_id: str, name: str, data: bytes) -> None:
        """On the storage thread, inside a transaction: replaces a bundle."""
        write_output(self._db, root_id, name, data)

    def _delete_steps(self, root_id: str, number: int) -> None:
        self._db.execute(sql.DELETE_STEPS, root=root_id, pattern=f"fleet-step-{number}-%")

    @stored
    def list_steps(self, root_id: str, number: int) -> list[str]:
        """The bundles of the steps of an unfinished task, in order."""
        return self._db.execute(sql.LIST_STEPS, root=root_id, pattern=f"fleet-step-{number}-%").scalars()

    # --- the queue ---------------------------------------------------------------------------------------

    @stored
    def prepare_queue(self, version: str, ddl: str) -> None:
        """Creates the tables of the job queue in a schema of their own, unless they exist."""
        from crushpy.storage.postgres_database import create_foreign_tables

        with self._db.transaction(durable=True):
            found = create_foreign_tables(self._db, QUEUE_SCHEMA, version, ddl)
            if found == "":
                self._db.execute(sql.UNQUEUE_TASKS)
        if found not in ("", version):
            raise UsageError(
                f"the schema {QUEUE_SCHEMA} of {self._db.place} has tables of {found}, "
                f"but this crushpy uses {version}",
                f"Update crushpy everywhere, stop all workers, then DROP SCHEMA {QUEUE_SCHEMA} CASCADE: "
                "lists and results are not in it.",
            )

    # --- workers ---------------------------------------------------------------------------------------

    @stored
    def beat(self, worker: FleetWorker) -> tuple[bool, dict[tuple[str, int], int]]:
        """A sign of life. Returns whether the worker should drain, and the tokens of its tasks by place; a
        task that was stopped is missing."""
        draining = self._db.execute(sql.SAVE_WORKER, **to_row(worker)).scalar()
        held = self._db.execute(sql.LIST_CLAIMS, name=worker.name)
        return draining, {(row.root_id, row.number): row.token for row in held}

    @stored
    def sign_off(self, worker: str) -> None:
        self._db.execute(sql.DELETE_WORKER, name=worker)

    @stored
    def drain(self, worker: str) -> bool:
        """Tells a worker to take no more tasks; False if there is none of that name."""
        return bool(self._db.execute(sql.DRAIN_WORKER, name=worker).rowcount)

    @stored
    def list_workers(self) -> list[FleetWorker]:
        """Those alive, by name."""
        rows = self._db.execute(sql.LIST_WORKERS, timeout=WORKER_TIMEOUT_S)
        return [from_row(FleetWorker, row) for row in rows]

    # --- rows ------------------------------------------------------------------------------------------

    def _set(self, root_id: str, number: int, **changes: Any) -> None:
        """Changes columns of a task: `queued`, or `stuck`, what no worker has for it."""
        values = {f"new_{name}": changes.get(name) for name in _CHANGEABLE}
        self._db.execute(sql.UPDATE_FLEET_TASK, root=root_id, number=number, **values)

    mark = stored(_set)

    def _save(self, root_id: str, task: ListedTask) -> None:
        self._db.execute(sql.SAVE_LISTED_TASK, root_id=root_id, **msgspec.structs.asdict(task))

    def _one(self, root_id: str, number: int) -> FleetTask:
        values = {"root": root_id, "number": number, "timeout": WORKER_TIMEOUT_S}
        row = self._db.execute(sql.FIND_FLEET_TASK, **values).first()
        if row is None:
            raise UsageError(
                f"there is no task {number} in list {root_id}", "`crushpy fleet status` lists them."
            )
        return _from_row(row)


def _from_row(row: FleetTaskRow) -> FleetTask:
    return from_row(FleetTask, row, task=from_row(ListedTask, row))


BASE_BUNDLE = "fleet-base.bundle"


def result_name(number: int) -> str:
    return f"fleet-result-{number}.bundle"


def step_name(number: int, step: int) -> str:
    """Sorted by step."""
    return f"fleet-step-{number}-{step:04}"
