"""`crushpy fleet` and `crushpy worker`: task lists on several machines, and the machines that run them."""

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_command,
    add_group,
    argument,
    open_store,
    option,
    print_json,
    print_lines,
    print_note,
    print_text,
)
from crushpy.cli.workspace import load_here, load_models, working_folder
from crushpy.core.errors import UsageError
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.engine.models import Models
    from crushpy.storage.fleet_store import FleetTask, FleetWorker
    from crushpy.storage.store import Store

RECENT_LISTS = 10
FOLLOW_INTERVAL_S, REDRAW_INTERVAL_S = 2.0, 1.0
ListId = Annotated[str, argument("The id of a list, a prefix, or `latest`.", metavar="LIST")]
TaskName = Annotated[str, argument("The name of a task.", metavar="TASK")]


def register(app: typer.Typer) -> None:
    commands = (status, logs, attach, steer, stop, answer, drain, fetch, merge)
    add_group(app, "fleet", {command.__name__: command for command in commands})
    add_command(app, "worker", worker_command)


@asynccontextmanager
async def _open_list(name: str) -> "AsyncGenerator[tuple[Store, str, list[FleetTask]]]":
    """The database, the id of a list on the fleet and its tasks; without a name no list, only the server."""
    from crushpy.storage.fleet_store import require_server

    async with open_store() as store:
        require_server(store.location)
        lists = await store.fleet.list_lists() if name else []
        found = (
            lists[:1] if name == "latest" else [listed for listed in lists if listed.startswith(name.lower())]
        )
        if name and len(found) != 1:
            several = f"Several task lists start with {name!r}: {', '.join(found)}."
            raise UsageError(
                several if found else f"There is no task list {name!r} on the fleet.",
                "`crushpy fleet status` shows them; `crushpy run --tasks FILE --fleet` starts one.",
            )
        root_id = found[0] if found else ""
        yield store, root_id, await store.fleet.load(root_id)


def _find_task(rows: "Sequence[FleetTask]", name: str) -> "FleetTask":
    found = next((row for row in rows if row.task.name == name), None)
    if found is None:
        names = ", ".join(row.task.name for row in rows[:20])
        raise UsageError(f"There is no task {name!r} in this list.", f"There are: {names}")
    return found


async def status(
    name: Annotated[str, argument("A list; without one: all recent.", metavar="[LIST]")] = "",
    as_json: AsJson = False,
) -> None:
    """Show workers and lists, or the tasks of one list. On a terminal it goes on until Ctrl-C."""
    from crushpy.cli.printers import LiveLines
    from crushpy.engine.agents.task_spec import ENDED

    (_, models), live = load_models(), LiveLines(sys.stdout)
    redraws = sys.stdout.isatty() and not as_json
    async with _open_list(name) as (store, root_id, _):
        while True:
            ids = [root_id] if root_id else (await store.fleet.list_lists())[:RECENT_LISTS]
            lists = {id_: await store.fleet.load(id_) for id_ in ids}
            active = [row for row in lists.get(root_id, ()) if row.task.state not in ENDED]
            windows = {row.task.name: await _read_window(store, models, row) for row in active}
            shown = FleetStatus(root_id, await store.fleet.list_workers(), lists, windows)
            if as_json:
                facts = {listed: [shown.facts(row) for row in rows] for listed, rows in lists.items()}
                print_json({"workers": shown.workers, "lists": facts})
            elif redraws:
                size = shutil.get_terminal_size()
                live.show(shown.draw(size.columns - 1, size.lines - 2))
            else:
                print_lines(shown.draw(sys.maxsize, sys.maxsize))
            if not redraws or (root_id and not active):
                return
            try:
                await asyncio.sleep(REDRAW_INTERVAL_S)
            except asyncio.CancelledError:  # Ctrl-C is how it ends
                return


async def _read_window(store: "Store", models: "Models", row: "FleetTask") -> tuple[int, int]:
    with suppress(UsageError):  # it has stored nothing yet
        tip = await store.sessions.find_tip(row.task.session_id)
        calls = await store.usage.load_lineage(tip.id)
        used = [call.total for session, call in calls if session == tip.id]
        return used[-1] if used else 0, models.window(tip.model) or 0
    return 0, 0


class FleetStatus(msgspec.Struct):
    name: str
    """The list whose tasks are shown; empty: all lists, without their tasks."""
    workers: "list[FleetWorker]"
    lists: "dict[str, list[FleetTask]]"
    windows: dict[str, tuple[int, int]]
    """Tokens in the context of unfinished tasks, and how many fit; 0 if that is unknown."""

    def draw(self, width: int, height: int) -> list[str]:
        from crushpy.engine.agents.task_reports import fit_line, money, table_lines, task_state_event
        from crushpy.fleet.submitter import describe_row

        lines = [] if self.workers else ["no workers"]
        for worker in self.workers:
            words = (
                f"{worker.running} of {worker.slots} slots",
                *worker.labels,
                *(["draining"] * worker.draining),
            )
            lines.append(f"worker {worker.name}  crushpy {worker.version}, {' '.join(words)}")
        for root_id, rows in self.lists.items():
            done, cost = sum(row.task.state == "done" for row in rows), sum(row.task.cost for row in rows)
            lines.append(f"list {root_id}  {done} of {len(rows)} tasks done, {money(cost)}")
        lines = [fit_line(line, width) for line in lines[-max(1, height - 4) :]]
        if self.name:
            rows = self.lists[self.name]
            events = [task_state_event(row.task, len(rows), describe_row(row)) for row in rows]
            lines += table_lines(events, width, height - len(lines), self._columns)
        return lines

    def _columns(self, name: str) -> str:
        """The window and the machine of a task, or their headings."""
        share, where = ("-", "-") if name else ("window", "machine")
        used, size = self.windows.get(name, (0, 0))
        if used or size:
            share = f"{used / size:.0%}" if size else f"{used:,}"
            where = _find_task(self.lists[self.name], name).worker
        return f"  {share:>6}  {where:<20}"

    def facts(self, row: "FleetTask") -> dict[str, Any]:
        used, size = self.windows.get(row.task.name, (0, 0))
        return msgspec.to_builtins(row.task) | {
            "worker": row.worker if row.token else "",
            "host": next(
                (worker.host for worker in self.workers if row.token and worker.name == row.worker), ""
            ),
            "deaths": row.deaths,
            "waiting_for": row.stuck,
            "question": msgspec.json.decode(row.question) if row.question else None,
            "context_tokens": used,
            "window": size,
        }


async def attach(
    name: Annotated[str, argument("A list; without one: the latest.", metavar="[LIST]")],
    task: Annotated[str, argument("The name of a task.", metavar="TASK")] = "",
) -> None:
    """Open the conversation of a task in the app: read-only, with new messages as they are stored."""
    name, task = (name, task) if task else ("latest", name)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("attach needs a terminal.", f"Without one, use: crushpy fleet logs {name} {task} -f")
    async with _open_list(name) as (store, root_id, rows):

        async def find() -> tuple[str, str]:
            row = _find_task(await store.fleet.load(root_id), task)
            where = f" on {row.worker}" if row.token else ""
            tip = await store.sessions.find_tip(row.task.session_id)
            return tip.id, one_line(f"{task}: {row.task.state}{where}, step {row.task.steps}")

        if not _find_task(rows, task).task.session_id:
            raise UsageError(f"{task} has not started.", f"`crushpy fleet status {root_id}` shows its state.")
        from crushpy.engine.session.browser import SessionBrowser
        from crushpy.tui.session_follower import SessionFollower

        browser = SessionBrowser(store)
        await SessionFollower(browser, find, load_here().settings.theme).run_async()


async def logs(
    name: ListId,
    task: TaskName,
    follow: Annotated[bool, option("--follow -f", "Go on until the task ends.")] = False,
) -> None:
    """Print the stored messages of a task."""
    from crushpy.engine.agents.task_spec import ENDED
    from crushpy.engine.session.export import messages_as_markdown

    async with _open_list(name) as (store, root_id, _):
        seen = 0
        while True:
            row = _find_task(await store.fleet.load(root_id), task)
            messages = await store.messages.load_lineage(row.task.session_id) if row.task.session_id else []
            print_text("".join(f"{block}\n\n" for block in messages_as_markdown(messages[seen:])))
            seen = len(messages)
            if not follow or row.task.state in ENDED:
                return
            await asyncio.sleep(FOLLOW_INTERVAL_S)


async def steer(name: ListId, task: TaskName, prompt: Annotated[str, argument("What to tell it.")]) -> None:
    """Send a prompt to a task; it gets it with its next step."""
    async with _open_list(name) as (store, root_id, rows):
        row = _find_task(rows, task)
        if row.task.state == "done":
            raise UsageError(
                f"{task} is done and takes no prompts.", f"Its result: crushpy fleet logs {name} {task}"
            )
        await store.fleet.steer(root_id, row.task.number, prompt)


async def stop(
    name: ListId, task: Annotated[str, argument("Only this task.", metavar="[TASK]")] = ""
) -> None:
    """Stop a list or one task of it. `crushpy run --resume LIST` starts it again."""
    async with _open_list(name) as (store, root_id, rows):
        chosen = [_find_task(rows, task)] if task else rows
        await store.fleet.stop(root_id, [row.task.number for row in chosen])


async def answer(
    name: ListId,
    task: Annotated[str, argument("Without one: show all questions.", metavar="[TASK]")] = "",
    reply: Annotated[
        Literal["", "once", "conversation", "deny"],
        argument("Allow this call, calls like it in this task, or none."),
    ] = "",
    words: Annotated[str, option("--words", "With `deny`: what the agent should do.")] = "",
) -> None:
    """Show what tasks ask for, or answer one of them."""
    from crushpy.engine.approvals import Answer
    from crushpy.fleet.submitter import describe_question

    async with _open_list(name) as (store, root_id, rows):
        asking = [row for row in rows if row.question and not row.answer]
        if not task or not reply:
            for row in asking:
                print_text(f"{describe_question(row)}\n")
            return
        row = _find_task(rows, task)
        if row not in asking:
            raise UsageError(f"{task} does not ask anything.", f"Open questions: crushpy fleet answer {name}")
        await store.fleet.answer(root_id, row.task.number, Answer(reply, words))


async def drain(
    worker: Annotated[str, argument("Its name in `status`.", metavar="WORKER")],
) -> None:
    """Let a worker take no more tasks; it ends when those it has are done."""
    async with _open_list("") as (store, _, _):
        if not await store.fleet.drain(worker):
            raise UsageError(f"There is no worker {worker}.", "`crushpy fleet status` shows them.")


async def fetch(name: ListId) -> None:
    """Bring the branches of a list into the repository of this folder."""
    from crushpy.fleet.submitter import fetch_result

    async with _open_list(name) as (store, root_id, rows):
        for row in rows:
            if row.task.branch:
                if said := await fetch_result(store, root_id, row.task, working_folder()):
                    print_note(said)
                print_text(f"{row.task.branch}\n")


async def merge(name: ListId) -> None:
    """Merge the branches without conflicts into the new branch crushpy/LIST/merged; nothing else changes."""
    from graphlib import TopologicalSorter

    from crushpy.engine.agents.task_spec import TaskListSpec
    from crushpy.fleet.git_bundles import merge_branches

    await fetch(name)
    async with _open_list(name) as (store, root_id, rows):
        listed = await store.tasks.load_list(root_id)
    assert listed is not None
    spec = msgspec.json.decode(listed.orders, type=TaskListSpec)
    assert spec.fleet is not None
    order = list(TopologicalSorter({task.name: task.needs or () for task in spec.tasks}).static_order())
    branches = {
        row.task.name: row.task.branch for row in rows if row.task.branch and row.task.state == "done"
    }
    chosen = [branches[task] for task in order if task in branches]
    merged, conflicts = await asyncio.to_thread(
        merge_branches, working_folder(), root_id, spec.fleet.base, chosen
    )
    for first, second, files in conflicts:
        print_note(f"conflict: {first} and {second} in {files}")
    print_text(f"{len(merged)} of {len(chosen)} branches merged into crushpy/{root_id}/merged\n")
    if conflicts:
        raise typer.Exit(1)


def worker_command(
    slots: Annotated[int, option("--slots", "Tasks at a time.", metavar="N", min=1, max=64)] = 1,
    label: Annotated[
        list[str] | None,
        option("--label", "What this machine has; tasks may ask for it.", metavar="KEY=VALUE"),
    ] = None,
    once: Annotated[bool, option("--once", "End when no task is left that it can take.")] = False,
    grace: Annotated[
        float, option("--grace", "For running tasks after SIGTERM or `drain`.", metavar="SECONDS", min=0)
    ] = 600.0,
    accept: Annotated[
        list[str] | None,
        option("--accept", "Let tasks do this outside their checkouts.", metavar="RULE"),
    ] = None,
    accept_yolo: Annotated[
        bool, option("--accept-yolo", "Let lists with --yolo run so here as well.")
    ] = False,
    no_sandbox: Annotated[bool, option("--no-sandbox", "Take tasks although no sandbox works here.")] = False,
) -> "Coroutine[None, None, None]":
    """Run tasks of a fleet, each in a process of its own, until SIGTERM.

    Deny and ask rules of this user's settings hold for every task; keys of models are this machine's.
    """
    from crushpy.fleet.job_queue import require_extra
    from crushpy.fleet.task_process import WorkerOptions, start_forks
    from crushpy.fleet.worker_process import Worker

    require_extra()
    options = WorkerOptions(
        slots, tuple(label or ()), once, grace, accept_yolo, no_sandbox, tuple(accept or ())
    )
    return Worker(options, print_note, start_forks()).run()
