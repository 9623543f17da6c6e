"""`crushpy fleet` and `crushpy worker`: task lists on several machines, and the machines that run them."""

import asyncio
import shutil
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_command,
    add_group,
    open_store,
    print_json,
    print_note,
    print_text,
)
from crushpy.cli.workspace import load_here, working_folder
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.storage.fleet_store import FleetTask, FleetWorker
    from crushpy.storage.store import Store

RECENT_LISTS = 10
FOLLOW_INTERVAL_S, REDRAW_INTERVAL_S = 2.0, 1.0
ListId = Annotated[str, typer.Argument(metavar="LIST", help="The id of a list, a prefix, or `latest`.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The name of a task.")]


def register(app: typer.Typer) -> None:
    commands = (status, logs, attach, steer, stop, answer, drain, fetch, merge)
    add_group(app, "fleet", {command.__name__: command for command in commands})
    add_command(app, "worker", worker_command)


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
    """Show workers and lists, or the tasks of one list. On a terminal it goes on until Ctrl-C."""
    from crushpy.cli.printers import LiveLines
    from crushpy.engine.models import Models
    from crushpy.llm.learnt import LearntModels

    models = Models(load_here().settings, lambda _: (), LearntModels(Paths().learnt_file))
    async with open_store() as store:
        if name or store.location.server is None:
            name, _ = await _find_list(store, name or "latest")
        live = LiveLines(sys.stdout)
        while True:
            shown = FleetStatus(name, await store.fleet.list_workers(), {}, {})
            for root_id in [name] if name else await store.fleet.list_recent(RECENT_LISTS):
                shown.lists[root_id] = await store.fleet.load(root_id)
            active = [row for row in shown.lists.get(name, ()) if row.task.state in ("waiting", "running")]
            for row in active:
                if row.task.session_id:
                    with suppress(UsageError):  # it has stored nothing yet
                        tip = await store.sessions.find_tip(row.task.session_id)
                        calls = await store.usage.load_lineage(tip.id)
                        used = [call.total for session, call in calls if session == tip.id]
                        shown.windows[row.task.name] = (
                            used[-1] if used else 0,
                            models.window(tip.model) or 0,
                        )
            if as_json:
                print_json(shown.facts())
            elif sys.stdout.isatty():
                size = shutil.get_terminal_size()
                live.show(shown.lines(size.columns - 1, size.lines - 2))
            else:
                print_text("\n".join(shown.lines(sys.maxsize, sys.maxsize)) + "\n")
            if as_json or not sys.stdout.isatty() or (name and not active):
                return
            try:
                await asyncio.sleep(REDRAW_INTERVAL_S)
            except asyncio.CancelledError:  # Ctrl-C is how it ends
                return


class FleetStatus(msgspec.Struct):
    name: str
    """The list whose tasks are shown; empty: all lists, without their tasks."""
    workers: "list[FleetWorker]"
    lists: "dict[str, list[FleetTask]]"
    windows: dict[str, tuple[int, int]]
    """Tokens in the context of unfinished tasks, and how many fit."""

    def lines(self, width: int, height: int) -> list[str]:
        from crushpy.engine.agents.task_reports import fit_line, money, table_lines, task_state_event
        from crushpy.fleet.submitter import describe_row

        lines = [] if self.workers else ["no workers"]
        for worker in self.workers:
            more = " ".join((*worker.labels, *(["draining"] if worker.draining else [])))
            used = f"{worker.running} of {worker.slots} slots"
            lines.append(f"worker {worker.name}  crushpy {worker.version}, {used} {more}".rstrip())
        for root_id, rows in self.lists.items():
            done, cost = (sum(row.task.state == "done" for row in rows), sum(row.task.cost for row in rows))
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
        if name in self.windows:
            used, size = self.windows[name]
            share = f"{used / size:.0%}" if size else f"{used:,}"
            where = next(row.worker for row in self.lists[self.name] if row.task.name == name)
        return f"  {share:>6}  {where:<20}"

    def facts(self) -> dict[str, Any]:
        lists = {name: [self._task_facts(row) for row in rows] for name, rows in self.lists.items()}
        return {"workers": self.workers, "lists": lists}

    def _task_facts(self, row: "FleetTask") -> dict[str, Any]:
        used, size = self.windows.get(row.task.name, (0, 0))
        return msgspec.to_builtins(row.task) | {
            "worker": row.worker if row.token else "",
            "host": next((one.host for one in self.workers if row.token and one.name == row.worker), ""),
            "deaths": row.deaths,
            "waiting_for": row.stuck,
            "question": msgspec.json.decode(row.question) if row.question else None,
            "context_tokens": used,
            "window": size,
        }


async def attach(
    name: Annotated[str, typer.Argument(metavar="[LIST]", help="A list; without one: the latest.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name of a task.")] = "",
) -> None:
    """Open the conversation of a task in the app: read-only, with new messages as they are stored."""
    name, task = (name, task) if task else ("latest", name)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("attach needs a terminal.", f"Without one, use: crushpy fleet logs {name} {task} -f")
    async with open_store() as store:
        root_id, rows = await _find_list(store, name)

        async def find() -> tuple[str, str]:
            row = _find_task(await store.fleet.load(root_id), task)
            where = f" on {row.worker}" if row.token else ""
            tip = await store.sessions.find_tip(row.task.session_id)
            return tip.id, one_line(f"{task}: {row.task.state}{where}, step {row.task.steps}")

        if not _find_task(rows, task).task.session_id:
            raise UsageError(f"{task} has not started.", f"`crushpy fleet status {root_id}` shows its state.")
        from crushpy.engine.session.browser import SessionBrowser
        from crushpy.tui.session_follower import SessionFollower

        browser = SessionBrowser(store, outputs=Paths().outputs, undo=Paths().undo)
        await SessionFollower(browser, find, load_here().settings.theme).run_async()


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
        seen = 0
        while True:
            row = _find_task(rows, task)
            messages = await store.messages.load_lineage(row.task.session_id) if row.task.session_id else []
            for message in messages[seen:]:
                calls = [f"· {call.name} {headline(call.name, call.args)}" for call in message.calls]
                result = [f"  {message.result.text}"] if message.result is not None else []
                text = "\n".join(filter(None, (message.text, *calls, *result)))
                print_text(f"{clean(text)}\n" if text else "")
            seen = len(messages)
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
        row = _find_task(rows, task)
        if row.task.state == "done":
            raise UsageError(
                f"{task} is done and takes no prompts.", f"Its result: crushpy fleet logs {name} {task}"
            )
        await store.fleet.send(root_id, row.task.number, prompt=prompt)


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
    from crushpy.fleet.submitter import describe_question

    async with open_store() as store:
        root_id, rows = await _find_list(store, name)
        asking = [row for row in rows if row.question and not row.answer]
        if not task or not reply:
            for row in asking:
                print_text(f"{describe_question(row)}\n")
            return
        row = _find_task(rows, task)
        if row not in asking:
            raise UsageError(f"{task} does not ask anything.", f"Open questions: crushpy fleet answer {name}")
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
    merged, conflicts = await asyncio.to_thread(
        merge_branches, working_folder(), root_id, spec.fleet.base, chosen
    )
    for first, second, files in conflicts:
        print_note(f"conflict: {first} and {second} in {files}")
    print_text(f"{len(merged)} of {len(chosen)} branches merged into crushpy/{root_id}/merged\n")
    if conflicts:
        raise typer.Exit(1)


def worker_command(
    slots: Annotated[int, typer.Option("--slots", metavar="N", min=1, max=64, help="Tasks at a time.")] = 1,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="What this machine has; tasks may ask for it."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no task is left that it can take.")] = False,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, help="For running tasks after SIGTERM or `drain`."),
    ] = 600.0,
    accept_yolo: Annotated[
        bool, typer.Option("--accept-yolo", help="Let lists with --yolo run so here as well.")
    ] = False,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Take tasks although no sandbox works here.")
    ] = False,
) -> "Coroutine[None, None, None]":
    """Run tasks of a fleet, each in a process of its own, until SIGTERM.

    Rules of this user's settings are a ceiling for every task; keys of models are this machine's.
    """
    from crushpy.fleet.task_process import WorkerOptions, start_forks
    from crushpy.fleet.worker_process import Worker

    options = WorkerOptions(slots, tuple(label or ()), once, grace, accept_yolo, no_sandbox)
    return Worker(options, print_note, start_forks()).run()
