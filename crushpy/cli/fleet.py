"""`crushpy fleet`: shows, steers and stops task lists on a fleet, and fetches their results."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from crushpy.cli.command_helpers import AsJson, add_group, open_store, print_json, print_note, print_text
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError

if TYPE_CHECKING:
    from crushpy.storage.fleet_store import FleetTask
    from crushpy.storage.store import Store

RECENT_LISTS = 10
FOLLOW_INTERVAL_S = 2.0
ListId = Annotated[str, typer.Argument(metavar="LIST", help="The id of a list, a prefix, or `latest`.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The name of a task.")]


def register(app: typer.Typer) -> None:
    commands = {
        "status": status,
        "logs": logs,
        "steer": steer,
        "stop": stop,
        "answer": answer,
        "drain": drain,
        "fetch": fetch,
        "merge": merge,
    }
    add_group(app, "fleet", commands)


async def _find_list(store: "Store", name: str) -> "tuple[str, list[FleetTask]]":
    """The id of a list on the fleet, and its tasks."""
    if store.location.server is None:
        raise UsageError(
            f"A fleet needs a PostgreSQL server: {store.place} is a file.", "Set database_url to one."
        )
    if name == "latest":
        found = await store.fleet.list_recent(1)
        if not found:
            raise UsageError("There is no list on the fleet.", "Start one: crushpy run --tasks FILE --fleet")
        name = found[0]
    root_id = (await store.sessions.find(name)).root_id
    rows = await store.fleet.load(root_id)
    if not rows:
        raise UsageError(f"{root_id} is not a list on the fleet.", "`crushpy fleet status` shows them.")
    return root_id, rows


def _find_task(rows: "Sequence[FleetTask]", name: str) -> "FleetTask":
    found = next((row for row in rows if row.task.name == name), None)
    if found is None:
        names = ", ".join(row.task.name for row in rows[:20])
        raise UsageError(f"There is no task {name!r} in this list.", f"There are: {names}")
    return found


async def status(
    name: Annotated[str, typer.Argument(metavar="[LIST]", help="A list; without one: all recent.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show workers and lists, or the tasks of one list."""
    from crushpy.engine.agents.task_reports import money
    from crushpy.fleet.submitter import describe_row
    from crushpy.security.sanitize import clean, one_line

    async with open_store() as store:
        if name:
            root_id, rows = await _find_list(store, name)
            lists = {root_id: rows}
        else:
            if store.location.server is None:
                await _find_list(store, "latest")
            recent = await store.fleet.list_recent(RECENT_LISTS)
            lists = {root_id: await store.fleet.load(root_id) for root_id in recent}
        workers = await store.fleet.list_workers()
    hosts = {worker.name: worker.host for worker in workers}
    if as_json:
        tasks: dict[str, Any] = {
            root_id: [{**msgspec.to_builtins(row.task), **_facts(row, hosts)} for row in rows]
            for root_id, rows in lists.items()
        }
        print_json({"workers": workers, "lists": tasks})
        return
    for worker in workers:
        labels = f", {' '.join(worker.labels)}" if worker.labels else ""
        drains = ", draining" if worker.draining else ""
        used = f"{worker.running} of {worker.slots} slots"
        print_text(f"worker {worker.name}  crushpy {worker.version}, {used}{labels}{drains}\n")
    if not workers:
        print_text("no workers\n")
    for root_id, rows in lists.items():
        done = sum(row.task.state == "done" for row in rows)
        cost = money(sum(row.task.cost for row in rows))
        print_text(f"list {root_id}  {done} of {len(rows)} tasks done, {cost}\n")
        for row in rows if name else ():
            task = row.task
            what = task.error or task.branch or describe_row(row)
            where = row.worker if row.token else "-"
            figures = f"{task.steps:>4} {task.tokens:>9,} {money(task.cost):>8}"
            print_text(f"  {task.name:<20} {task.state:<11} {figures}  {where:<20} {one_line(clean(what))}\n")


def _facts(row: "FleetTask", hosts: dict[str, str]) -> dict[str, Any]:
    return {
        "worker": row.worker if row.token else "",
        "host": hosts.get(row.worker, "") if row.token else "",
        "deaths": row.deaths,
        "waiting_for": row.stuck,
        "question": msgspec.json.decode(row.question) if row.question else None,
    }


async def logs(
    name: ListId,
    task: TaskName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task ends.")] = False,
) -> None:
    """Print the stored messages of a task."""
    from crushpy.core.messages import headline
    from crushpy.security.sanitize import clean

    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        seen: set[str] = set()
        while True:
            row = _find_task(rows, task)
            messages = await store.messages.load_lineage(row.task.session_id) if row.task.session_id else []
            for message in messages:
                if message.id in seen:
                    continue
                seen.add(message.id)
                calls = [f"· {call.name} {headline(call.name, call.args)}" for call in message.calls]
                result = [f"  {message.result.text}"] if message.result is not None else []
                text = "\n".join(filter(None, (message.text, *calls, *result)))
                print_text(f"{clean(text)}\n" if text else "")
            if not follow or row.task.state not in ("waiting", "running"):
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)
            rows = await store.fleet.load(root_id)


async def steer(
    name: ListId, task: TaskName, prompt: Annotated[str, typer.Argument(help="What to tell it.")]
) -> None:
    """Send a prompt to a task; it gets it with its next step."""
    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        await store.fleet.send(root_id, _find_task(rows, task).task.number, prompt=prompt)


async def stop(
    name: ListId, task: Annotated[str, typer.Argument(metavar="[TASK]", help="Only this task.")] = ""
) -> None:
    """Stop a list or one task of it. `crushpy run --resume LIST` starts it again."""
    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        chosen = [_find_task(rows, task)] if task else rows
        await store.fleet.stop(root_id, [row.task.number for row in chosen])


async def answer(
    name: ListId,
    task: Annotated[str, typer.Argument(metavar="[TASK]", help="Without one: show all questions.")] = "",
    reply: Annotated[
        Literal["", "once", "conversation", "deny"],
        typer.Argument(help="Allow this call, calls like it in this task, or none."),
    ] = "",
    words: Annotated[str, typer.Option("--words", help="With `deny`: what the agent should do.")] = "",
) -> None:
    """Show what tasks ask for, or answer one of them."""
    from crushpy.engine.approvals import Answer
    from crushpy.security.sanitize import clean

    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        asking = [row for row in rows if row.question and not row.answer]
        if not task or not reply:
            for row in asking:
                question = msgspec.json.decode(row.question)
                why = clean(question.get("reason", ""))
                print_text(f"{row.task.name} on {row.worker}: {clean(question.get('title', ''))} {why}\n")
                print_text(f"  {question['name']} {clean(str(question['args']))}\n")
            return
        row = _find_task(asking, task)
        chosen = Answer(reply, words=words) if words else Answer(reply)
        await store.fleet.send(root_id, row.task.number, answer=msgspec.json.encode(chosen).decode())


async def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Its name in `status`.")],
) -> None:
    """Let a worker take no more tasks; it ends when those it has are done."""
    async with open_store() as store:
        if store.location.server is None or not await store.fleet.drain(worker):
            raise UsageError(f"There is no worker {worker}.", "`crushpy fleet status` shows them.")


async def fetch(name: ListId) -> None:
    """Bring the branches of a list into the repository of this folder."""
    from crushpy.fleet.submitter import fetch_result

    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        for row in rows:
            if row.task.branch:
                await fetch_result(store, root_id, row.task, working_folder())
                print_text(f"{row.task.branch}\n")


async def merge(name: ListId) -> None:
    """Merge the branches without conflicts into the new branch crushpy/LIST/merged; nothing else changes."""
    from graphlib import TopologicalSorter

    from crushpy.engine.agents.task_spec import TaskListSpec
    from crushpy.fleet.git_bundles import merge_branches

    await fetch(name)
    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        listed = await store.tasks.load_list(root_id)
    assert listed is not None
    spec = msgspec.json.decode(listed.orders, type=TaskListSpec)
    assert spec.fleet is not None
    order = list(TopologicalSorter({task.name: task.needs or () for task in spec.tasks}).static_order())
    branches = {
        row.task.name: row.task.branch for row in rows if row.task.branch and row.task.state == "done"
    }
    chosen = [branches[one] for one in order if one in branches]
    report = await asyncio.to_thread(merge_branches, working_folder(), root_id, spec.fleet.base, chosen)
    for first, second, files in report.conflicts:
        print_note(f"conflict: {first} and {second} in {files}")
    print_text(f"{len(report.merged)} of {len(chosen)} branches merged into crushpy/{root_id}/merged\n")
    if report.conflicts:
        raise typer.Exit(1)
