"""Which tasks of a list can start. Submitters and workers all run this; storage makes it safe to repeat."""

from collections.abc import Sequence

import msgspec

from crushpy.core.messages import Usage
from crushpy.engine.agents.task_spec import UNSUCCESSFUL, FleetTerms, TaskListSpec, TaskSpec
from crushpy.engine.turn.limits import Spent
from crushpy.fleet.job_queue import JobQueue, queue_name
from crushpy.storage.fleet_store import FleetTask, FleetWorker
from crushpy.storage.store import Store


async def dispatch(store: Store, queue: JobQueue, root_id: str, wait_s: float) -> list[FleetTask]:
    """Defers a job for each task that can start, skips those that never can, and fails those that no worker
    could take for `wait_s`. Returns all tasks as they were before."""
    listed = await store.tasks.load_list(root_id)
    rows = await store.fleet.load(root_id)
    if listed is None or not rows:
        return rows
    spec = msgspec.json.decode(listed.orders, type=TaskListSpec)
    if spec.fleet is None:
        return rows
    workers = [worker for worker in await store.fleet.list_workers() if not worker.draining]
    states = {row.task.name: row.task.state for row in rows}
    active = sum(row.task.state == "running" or row.queued for row in rows)
    reached = list_limit(spec.fleet, rows)
    for row, task in zip(rows, spec.tasks, strict=True):
        number = row.task.number
        if row.task.state != "waiting" or row.stopped or (row.question and not row.answer):
            continue
        needs = {need: states[need] for need in task.needs or ()}
        if failed := [need for need, state in needs.items() if state in UNSUCCESSFUL]:
            await store.fleet.end_unstarted(root_id, number, "skipped", f"it needs {', '.join(failed)}")
            states[task.name] = "skipped"
        elif reached:
            await store.fleet.end_unstarted(root_id, number, "limit", reached)
        elif all(state == "done" for state in needs.values()):
            if not row.queued and active < listed.parallel:
                name = queue_name(spec.fleet.version, task.labels)
                begun = bool(row.task.session_id or row.deaths)
                await queue.defer(name, root_id, number, first=begun)
                await store.fleet.mark_queued(root_id, number)
                active += 1
            lack = describe_lack(task, spec.fleet, workers)
            if lack != row.stuck:
                await store.fleet.mark_stuck(root_id, number, lack)
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
    model = task.work.model or terms.model
    return "" if any(model not in worker.lacks for worker in labelled) else f"a key for {model}"


def list_limit(terms: FleetTerms, rows: Sequence[FleetTask]) -> str:
    """The limit of the whole list that is reached, in words; empty if none is."""
    spent = Spent(terms.limits)
    spent.steps = sum(row.task.steps for row in rows)
    spent.used = Usage(sum(row.task.tokens for row in rows), cost=sum(row.task.cost for row in rows))
    return spent.reached()
