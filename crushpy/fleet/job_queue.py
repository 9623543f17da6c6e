"""The job queue inside PostgreSQL. A job carries two ids; storage decides what becomes of it.

The only module that imports procrastinate.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Self

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Usage
from crushpy.engine.agents.task_spec import FleetTerms, TaskListSpec, TaskSpec, find_blocked
from crushpy.engine.turn.limits import Spent
from crushpy.storage.fleet_store import QUEUE_SCHEMA, FleetTask, FleetWorker, require_server
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.store import Store

STALLED_S = 30.0
"""Three heartbeats of the queue's own. Tasks have heartbeats of ours: this only concerns jobs."""
MAX_LABELS = 8
"""A worker listens to one queue for each set of its labels."""
_JOB = "crushpy.task"
RunJob = Callable[[str, int], Awaitable[None]]


def queue_name(version: str, labels: Iterable[str]) -> str:
    """Only workers of that version with these labels listen to it."""
    return " ".join((version, *sorted(set(labels))))


def queue_names(version: str, labels: Sequence[str]) -> list[str]:
    """All queues of a worker."""
    wanted = sorted(set(labels))
    sets = (chosen for many in range(len(wanted) + 1) for chosen in combinations(wanted, many))
    return [queue_name(version, chosen) for chosen in sets]


def require_queue(location: Location) -> ServerAddress:
    """The server of a fleet. Raises UsageError if there is none, or if procrastinate is not installed."""
    server = require_server(location)
    require_extra()
    return server


def require_extra() -> None:
    """Raises UsageError if procrastinate is not installed."""
    try:
        import procrastinate as _  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"A fleet needs procrastinate, which is not installed: {error}",
            "Install it with `pip install 'crushpy[fleet]'`.",
        ) from error


class JobQueue:
    """Open it with `async with`. `run` is called with each job of a worker."""

    def __init__(self, store: Store, run: RunJob | None = None) -> None:
        server = require_queue(store.location)
        from procrastinate import App, PsycopgConnector, RetryStrategy

        for name in ("procrastinate", "psycopg.pool"):  # our own log says what matters
            logging.getLogger(name).propagate = False
            logging.getLogger(name).addHandler(logging.NullHandler())
        self._store = store
        options = {"options": f"-c search_path={QUEUE_SCHEMA}", "application_name": "crushpy fleet"}
        connector = PsycopgConnector(conninfo=server.url, min_size=1, max_size=4, timeout=60, kwargs=options)
        self.app: App = App(connector=connector)
        if run is not None:
            self.app.task(name=_JOB, retry=RetryStrategy(wait=2))(run)  # the database was lost meanwhile

    async def __aenter__(self) -> Self:
        from procrastinate import __version__
        from procrastinate.schema import SchemaManager

        version = f"procrastinate {'.'.join(__version__.split('.')[:2])}"
        await self._store.fleet.prepare_queue(version, SchemaManager.get_schema())
        await self.app.open_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.close_async()

    async def defer(self, queue: str, root_id: str, number: int, *, first: bool) -> None:
        """Adds a job, unless one for that task waits already. `first`: before all others."""
        from procrastinate.exceptions import AlreadyEnqueued

        lock = f"{root_id} {number}"
        task = self.app.configure_task(_JOB, queue=queue, queueing_lock=lock, priority=int(first))
        with suppress(AlreadyEnqueued):
            await task.defer_async(root_id=root_id, number=number)

    async def work(self, queues: Sequence[str], slots: int, name: str, *, once: bool) -> None:
        """Runs jobs until it is cancelled (it waits for those that run) or, `once`, until there are none."""
        await self.app.run_worker_async(
            queues=queues,
            concurrency=slots,
            name=name,
            wait=not once,
            delete_jobs="always",
            install_signal_handlers=False,
            stalled_worker_timeout=STALLED_S,
        )

    async def drop_stalled(self) -> None:
        """Removes the jobs of dead workers, or lets them run again if no worker had claimed their task."""
        from procrastinate.jobs import Status

        manager = self.app.job_manager
        for job in await manager.get_stalled_jobs(task_name=_JOB, seconds_since_heartbeat=STALLED_S):
            rows = await self._store.fleet.load(str(job.task_kwargs["root_id"]))
            row = next((row for row in rows if row.task.number == job.task_kwargs["number"]), None)
            if row is not None and row.alive:  # its worker lost the queue's connection, and ends it itself
                continue
            if row is not None and row.queued and not row.token:
                await manager.retry_job(job)
            elif job.id is not None:
                await manager.finish_job_by_id_async(job.id, Status.ABORTED, delete_job=True)


# --- dispatching -----------------------------------------------------------------------------------------


async def dispatch(store: Store, queue: JobQueue, root_id: str, wait_s: float) -> list[FleetTask]:
    """Defers a job for each task that can start, skips those that never can, and fails those that no worker
    could take for `wait_s`. Returns all tasks as they were before. Submitters and workers all run this;
    storage makes it safe to repeat."""
    listed, rows = await store.tasks.load_list(root_id), await store.fleet.load(root_id)
    spec = msgspec.json.decode(listed.orders, type=TaskListSpec) if listed else None
    if listed is None or spec is None or spec.fleet is None:  # it was deleted
        return rows
    workers = [worker for worker in await store.fleet.list_workers() if not worker.draining]
    states = {row.task.name: row.task.state for row in rows}
    blocked = find_blocked(spec.tasks, states)
    active = sum(row.task.state == "running" or row.queued for row in rows)
    spent = Spent(spec.fleet.limits)
    spent.steps = sum(row.task.steps for row in rows)
    spent.used = Usage(sum(row.task.tokens for row in rows), cost=sum(row.task.cost for row in rows))
    reached = spent.reached()
    for row, task in zip(rows, spec.tasks, strict=True):
        number = row.task.number
        if row.task.state != "waiting" or row.stopped or (row.question and not row.answer):
            continue
        if failed := blocked.get(task.name):
            await store.fleet.end_unstarted(root_id, number, "skipped", f"it needs {', '.join(failed)}")
        elif reached:
            await store.fleet.end_unstarted(root_id, number, "limit", reached)
        elif all(states[need] == "done" for need in task.needs or ()):
            if not row.queued and active < listed.parallel:
                begun = bool(row.task.session_id or row.deaths)
                await queue.defer(queue_name(spec.fleet.version, task.labels), root_id, number, first=begun)
                await store.fleet.mark(root_id, number, queued=True)
                active += 1
            lack = describe_lack(task, spec.fleet, workers)
            if lack != row.stuck:
                await store.fleet.mark(root_id, number, stuck=lack)
            elif lack and row.stuck_s > wait_s:
                error = f"no worker has {lack}; it waited for {wait_s:g} s (fleet.wait)"
                await store.fleet.end_unstarted(root_id, number, "failed", error)
    return rows


def describe_lack(task: TaskSpec, terms: FleetTerms, workers: Sequence[FleetWorker]) -> str:
    """What no worker has that the task needs; empty if one can take it."""
    if not workers:
        return "been started"
    same = [worker for worker in workers if worker.version == terms.version]
    if not same:
        others = ", ".join(sorted({worker.version for worker in workers}))
        return f"crushpy {terms.version} (they have {others})"
    labelled = [worker for worker in same if set(task.labels) <= set(worker.labels)]
    if not labelled:
        return ", ".join(task.labels)
    model = task.model or terms.model
    return "" if any(model not in worker.lacks for worker in labelled) else f"a key for {model}"
