"""`store.fleet`: tasks that run on several machines, their claims, bundles and workers. PostgreSQL only.

A worker claims a task with a token. Every later write of the worker names that token: after another worker
has claimed the task, nothing the first one writes is accepted.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Usage
from crushpy.storage.database import Rows, Statement, handwritten, lease_timeout
from crushpy.storage.generated import statements as sql
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.record_store import write_output
from crushpy.storage.records import ListedTask
from crushpy.storage.session_rows import json_text
from crushpy.storage.storage_thread import Subject, stored

WORKER_TIMEOUT_S = min(30.0, lease_timeout() * 2 / 3)
"""A worker without a heartbeat for this time counts as dead."""
QUEUE_SCHEMA = "crushpy_queue"
"""Holds the tables of the job queue."""
_NOW = "extract(epoch FROM clock_timestamp())"
_TASKS = f"""
SELECT to_jsonb(l) AS task, f.token, f.worker, f.deaths::jsonb, f.queued, f.stuck, f.line, f.question,
    f.answer, f.inbox::jsonb, f.stopped,
    CASE WHEN f.stuck = '' THEN 0 ELSE {_NOW} - f.stuck_since END::float8 AS stuck_s,
    f.token <> 0 AND coalesce(w.heartbeat > {_NOW} - {WORKER_TIMEOUT_S}, false) AS alive
FROM listed_task l JOIN fleet_task f USING (root_id, number) LEFT JOIN fleet_worker w ON w.name = f.worker
"""  # noqa: S608  # our own figures


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

    @stored
    def publish(self, root_id: str, orders: str) -> None:
        """Hands a stored list to the fleet. Tasks that ended without success start again."""
        with self._db.transaction(durable=True, session=root_id):
            update = "UPDATE task_list SET orders = :orders WHERE root_id = :root"
            self._run(update, root=root_id, orders=orders)
            self._run(
                "INSERT INTO fleet_task (root_id, number) SELECT root_id, number FROM listed_task "
                "WHERE root_id = :root ON CONFLICT DO NOTHING",
                root=root_id,
            )
            for one in self._load("WHERE l.root_id = :root", root=root_id):
                if one.task.state not in ("done", "running", "waiting") or one.stopped:
                    again = ListedTask(one.task.number, one.task.name)
                    self._delete_steps(root_id, again.number)
                    self._free(root_id, again, "waiting", deaths="[]", stopped=False, question="", answer="")

    @stored
    def load(self, root_id: str) -> list[FleetTask]:
        """All tasks of a list, in order; empty if it does not run on a fleet."""
        return list(self._load("WHERE l.root_id = :root ORDER BY l.number", root=root_id))

    @stored
    def list_lists(self, *, active: bool = False) -> list[str]:
        """The lists on the fleet, the latest first; `active`: those that workers have to look after."""
        tasks = "SELECT f.root_id FROM fleet_task f JOIN listed_task l USING (root_id, number)"
        tasks += " WHERE l.state IN ('waiting', 'running') AND NOT f.stopped" if active else ""
        lists = f"SELECT root_id FROM task_list WHERE root_id IN ({tasks})"  # noqa: S608
        return self._run(f"{lists} ORDER BY created_at DESC").scalars()

    @stored
    def mark_queued(self, root_id: str, number: int, *, queued: bool = True) -> None:
        self._set(root_id, number, queued=queued)

    @stored
    def mark_stuck(self, root_id: str, number: int, stuck: str) -> None:
        """What no worker has for this task; empty if one can take it."""
        now = self._run(f"SELECT ({_NOW})::float8").scalar()
        self._set(root_id, number, stuck=stuck, stuck_since=now)

    @stored
    def end_unstarted(self, root_id: str, number: int, state: str, error: str) -> None:
        """Ends a task that waits, unless a worker has it meanwhile."""
        with self._db.transaction(durable=True, session=root_id):
            one = self._one(root_id, number)
            if one.task.state == "waiting" and not one.token:
                self._free(root_id, msgspec.structs.replace(one.task, error=error), state)

    # --- claims ----------------------------------------------------------------------------------------

    @stored
    def claim(self, root_id: str, number: int, worker: str) -> FleetTask | None:
        """Gives a task to a worker; None if it has ended, waits for an answer, or another worker has it, also
        a dead one: `reap` frees it."""
        with self._db.transaction(durable=True, session=root_id):
            one = self._one(root_id, number)
            waits = bool(one.question) and not one.answer
            if one.task.state != "waiting" or one.token or one.stopped or waits:
                return None
            token = self._run("SELECT nextval('lease_token')").scalar()
            self._set(root_id, number, token=token, worker=worker, queued=False, stuck="")
            self._save(root_id, msgspec.structs.replace(one.task, state="running"))
            return self._one(root_id, number)

    @stored
    def abandon(self, root_id: str, number: int, token: int, reason: str) -> None:
        """Frees a claim. With a reason it counts as a dead attempt; else the task is parked."""
        with self._db.transaction(durable=True, session=root_id):
            one = self._one(root_id, number)
            if one.token == token and reason:
                self._count_death(root_id, one, reason)
            elif one.token == token:
                self._free(root_id, one.task, "interrupted" if one.stopped else "waiting")

    @stored
    def reap(self) -> None:
        """Counts the attempts of dead workers, and frees their tasks."""
        claimed = f"SELECT task->>'root_id' AS root_id, task->'number' AS number FROM ({_TASKS}) claimed"  # noqa: S608
        for dead in list(self._run(f"{claimed} WHERE token <> 0 AND NOT alive").dicts()):
            with self._db.transaction(durable=True, session=dead["root_id"]):
                one = self._one(**dead)
                if one.token and not one.alive:
                    self._count_death(dead["root_id"], one, f"{one.worker} was lost")

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

    @stored
    def step(
        self, root_id: str, token: int, task: ListedTask, line: str
    ) -> tuple[int, Usage, tuple[str, ...]]:
        """Stores the progress of a task. Returns the steps and the usage of the whole list, and the prompts
        for this task. `ClaimLost`."""
        with self._db.transaction(session=root_id):
            inbox = self._claimed(root_id, task.number, token).inbox
            self._save(root_id, task)
            self._set(root_id, task.number, line=line, inbox="[]", answer="", question="")
            sums = "SELECT sum(steps)::bigint AS steps, sum(tokens)::bigint AS tokens, sum(cost) AS cost"
            rows = self._run(f"{sums} FROM listed_task WHERE root_id = :root", root=root_id)
            total = next(iter(rows.dicts()))
            return total["steps"], Usage(total["tokens"], cost=total["cost"]), inbox

    @stored
    def accept(
        self, root_id: str, token: int, task: ListedTask, bundle: bytes = b"", question: str = ""
    ) -> None:
        """Stores how a task ended with the bundle of its branch: both or neither, and once. With a question
        it waits: its slot is free, and the answer starts it again. `ClaimLost`."""
        with self._db.transaction(durable=True, session=root_id):
            if self._claimed(root_id, task.number, token).stopped:
                task = msgspec.structs.replace(task, state="interrupted", error="stopped")
            if task.state != "waiting":
                self._delete_steps(root_id, task.number)
            if bundle:
                self.write_bundle(root_id, result_name(task.number), bundle)
            self._free(root_id, task, task.state, question=question, answer="")

    @stored
    def steer(self, root_id: str, number: int, prompt: str) -> None:
        """A prompt for a task, which it reads between two steps, or when it starts again."""
        with self._db.transaction(durable=True, session=root_id):
            self._set(root_id, number, inbox=json_text((*self._one(root_id, number).inbox, prompt)))

    @stored
    def answer(self, root_id: str, number: int, answer: Data) -> None:
        """The user's answer to the question of a task: it can start again."""
        with self._db.transaction(durable=True, session=root_id):
            self._set(root_id, number, answer=json_text(answer), queued=False)

    @stored
    def stop(self, root_id: str, numbers: Sequence[int]) -> None:
        """Stops tasks: those that wait end now, workers end those that run."""
        with self._db.transaction(durable=True, session=root_id):
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
        where = "WHERE root_id = :root AND name LIKE :name"
        self._run(f"DELETE FROM output {where}", root=root_id, name=f"fleet-step-{number}-%")  # noqa: S608

    @stored
    def list_steps(self, root_id: str, number: int) -> list[str]:
        """The bundles of the steps of an unfinished task, in order."""
        found = "SELECT DISTINCT name FROM output WHERE root_id = :root AND name LIKE :name ORDER BY name"
        return self._run(found, root=root_id, name=f"fleet-step-{number}-%").scalars()

    # --- the queue ---------------------------------------------------------------------------------------

    @stored
    def prepare_queue(self, version: str, ddl: str) -> None:
        """Creates the tables of the job queue in a schema of their own, unless they exist."""
        with self._db.transaction(durable=True):
            self._db.lock_sequence(QUEUE_SCHEMA)
            found = self._run(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :name",
                name=QUEUE_SCHEMA,
            ).scalars()
            if found and found[0] != version:
                raise UsageError(
                    f"the schema {QUEUE_SCHEMA} of {self._db.place} has tables of {found[0]}, "
                    f"but this crushpy uses {version}",
                    f"Update crushpy everywhere, stop all workers, then DROP SCHEMA {QUEUE_SCHEMA} CASCADE: "
                    "lists and results are not in it.",
                )
            if not found:
                self._run(f"CREATE SCHEMA {QUEUE_SCHEMA}")
                self._run(f"COMMENT ON SCHEMA {QUEUE_SCHEMA} IS '{version}'")
                self._run(f"SET LOCAL search_path = {QUEUE_SCHEMA}")
                self._db.execute(Statement[Any]("", ddl.replace("%", "%%"), None))
                self._run("UPDATE crushpy.fleet_task SET queued = false")

    # --- workers ---------------------------------------------------------------------------------------

    @stored
    def beat(self, worker: FleetWorker) -> tuple[bool, dict[tuple[str, int], int]]:
        """A sign of life. Returns whether the worker should drain, and the tokens of its tasks by place; a
        task that was stopped is missing."""
        lists = {"labels": json_text(worker.labels), "lacks": json_text(worker.lacks)}
        draining = self._run(
            "INSERT INTO fleet_worker (name, host, version, labels, slots, lacks, heartbeat) "  # noqa: S608
            f"VALUES (:name, :host, :version, :labels, :slots, :lacks, {_NOW}) "
            "ON CONFLICT (name) DO UPDATE SET lacks = :lacks, heartbeat = excluded.heartbeat "
            "RETURNING draining",
            **(msgspec.structs.asdict(worker) | lists),
        ).scalar()
        mine = "WHERE worker = :name AND token <> 0 AND NOT stopped"
        held = self._run(f"SELECT root_id, number, token FROM fleet_task {mine}", name=worker.name).dicts()  # noqa: S608
        return draining, {(one["root_id"], one["number"]): one["token"] for one in held}

    @stored
    def sign_off(self, worker: str) -> None:
        self._run("DELETE FROM fleet_worker WHERE name = :name", name=worker)

    @stored
    def drain(self, worker: str) -> bool:
        """Tells a worker to take no more tasks; False if there is none of that name."""
        statement = "UPDATE fleet_worker SET draining = true WHERE name = :name"
        return bool(self._run(statement, name=worker).rowcount)

    @stored
    def list_workers(self) -> list[FleetWorker]:
        """Those alive, by name."""
        rows = self._run(
            "SELECT name, host, version, labels::jsonb, slots, lacks::jsonb, draining, "  # noqa: S608
            f"({_NOW} - heartbeat)::float8 AS silent, "
            "(SELECT count(*) FROM fleet_task f WHERE f.worker = w.name AND f.token <> 0) "
            f"AS running FROM fleet_worker w WHERE heartbeat > {_NOW} - {WORKER_TIMEOUT_S} ORDER BY name"
        ).dicts()
        return [msgspec.convert(row, FleetWorker) for row in rows]

    # --- statements ------------------------------------------------------------------------------------

    def _run(self, statement: str, **values: Any) -> Rows[Any]:
        return self._db.execute(handwritten(statement), **values)

    def _set(self, root_id: str, number: int, **changes: Any) -> None:
        columns = ", ".join(f"{name} = :{name}" for name in changes)
        where = "WHERE root_id = :root AND number = :place"
        self._run(f"UPDATE fleet_task SET {columns} {where}", root=root_id, place=number, **changes)  # noqa: S608

    def _save(self, root_id: str, task: ListedTask) -> None:
        self._db.execute(sql.SAVE_LISTED_TASK, root_id=root_id, **msgspec.structs.asdict(task))

    def _one(self, root_id: str, number: int) -> FleetTask:
        for one in self._load("WHERE l.root_id = :root AND l.number = :number", root=root_id, number=number):
            return one
        raise UsageError(f"there is no task {number} in list {root_id}", "`crushpy fleet status` lists them.")

    def _load(self, where: str, **values: Any) -> Iterator[FleetTask]:
        for row in list(self._run(f"{_TASKS} {where}", **values).dicts()):
            yield msgspec.convert(row, FleetTask)


BASE_BUNDLE = "fleet-base.bundle"


def result_name(number: int) -> str:
    return f"fleet-result-{number}.bundle"


def step_name(number: int, step: int) -> str:
    """Sorted by step."""
    return f"fleet-step-{number}-{step:04}"
