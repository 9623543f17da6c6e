"""`store.pins`, `statuses`, `notes`, `leases`, `tasks`, `usage` and `outputs`."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Json, Message, Pin, SentStatus, Usage
from crushpy.core.paths import private_dir
from crushpy.core.timeline_notes import TimelineNote
from crushpy.security.private_files import write_private
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import ListedTask, StoredTaskList, TaskResult, TasksDone, UsageSum
from crushpy.storage.session_rows import json_text, load_reach, usage_figures
from crushpy.storage.storage_thread import StorageThread, Subject, stored, written


class PinStore(Subject):
    """Pins belong to a conversation: all its sessions share them."""

    def _load(self, root_id: str) -> list[Pin]:
        """The pins of a conversation, by number."""
        return self._db.execute(sql.LIST_PINS, root=root_id).all()

    load = stored(_load)

    @written(durable=True)
    def add(self, root_id: str, pin: Pin) -> Pin:
        """Stores a pin under the next number."""
        numbers = [record.number for record in self._load(root_id)]
        added = msgspec.structs.replace(pin, number=max(numbers, default=0) + 1)
        self._db.execute(sql.INSERT_PIN, root_id=root_id, **msgspec.structs.asdict(added))
        return added

    @written(durable=True)
    def remove(self, root_id: str, number: int) -> Pin:
        """Removes a pin and returns it. `UsageError` if there is none with that number."""
        found = {record.number: record for record in self._load(root_id)}
        if number not in found:
            numbers = ", ".join(map(str, found)) or "none"
            raise UsageError(
                f"there is no pin {number} in this conversation; there are: {numbers}",
                f"`crushpy sessions pins {root_id}` lists them.",
            )
        self._db.execute(sql.DELETE_PIN, root=root_id, number=number)
        return found[number]


class StatusStore(Subject):
    """Context statuses that stay in the requests of their session."""

    @stored
    def load(self, session_id: str) -> list[SentStatus]:
        rows = self._db.execute(sql.LIST_STATUSES, session=session_id)
        return [
            SentStatus(row.message_id, row.text, *_changes.decode(row.tool_changes or "[[],[]]"))
            for row in rows
        ]

    @written()
    def save(self, session_id: str, status: SentStatus) -> None:
        """Stores a status; it replaces one at the same place, whose request had no reply."""
        changed = status.added or status.removed
        changes = msgspec.json.encode((status.added, status.removed)).decode() if changed else ""
        where = {"session_id": session_id, "message_id": status.message_id}
        self._db.execute(sql.SAVE_STATUS, **where, text=status.text, tool_changes=changes)


log = logging.getLogger(__name__)
_changes = msgspec.json.Decoder(tuple[tuple[Json, ...], tuple[str, ...]])
_QUARTER_HOUR_S = 900
_MIN_COST = 1e-9
"""Less than this is a rounding error."""


class NoteStore(Subject):
    """Events between messages."""

    def record(self, session_id: str, note: TimelineNote) -> None:
        """Stores a note in the background; a failure is only logged."""

        def add() -> None:
            with self._db.transaction(session=session_id):
                self._db.execute(sql.INSERT_NOTE, session_id=session_id, **msgspec.structs.asdict(note))

        def report(done: "Future[None]") -> None:
            if (error := done.exception()) is not None:
                log.warning("a timeline note was not stored: %s", error)

        with suppress(RuntimeError):  # closed meanwhile
            self._thread.submit(add).add_done_callback(report)

    @stored
    def load(self, session_id: str, carried: Sequence[str] = ()) -> list[TimelineNote]:
        """The notes of a session, and those after messages that were carried into it."""
        return self._db.execute(sql.LIST_NOTES, session=session_id, carried=json_text(carried)).all()


class LeaseStore(Subject):
    """One writer for each session."""

    async def acquire(self, session_id: str) -> bool:
        """Makes this process the only writer of a session; False if it was already. `SessionBusy` if another
        process is."""
        acquired = await self._thread.run(lambda: self._db.leases.acquire(session_id))
        self._thread.start_heartbeat()
        return acquired

    @asynccontextmanager
    async def hold(self, *session_ids: str) -> AsyncGenerator[list[str]]:
        """Keeps other processes out of these sessions. Yields those whose leases are released at the end: all
        that this process did not have before."""
        taken: list[str] = []
        try:
            for session_id in session_ids:
                if await self.acquire(session_id):
                    taken.append(session_id)
            yield taken
        finally:
            for taken_by in taken:
                await self.release(taken_by)

    @stored
    def release(self, session_id: str) -> None:
        self._db.leases.release(session_id)

    @stored
    def release_all(self) -> None:
        self._db.leases.release_all()


class TaskStore(Subject):
    @stored
    def add_result(self, result: TaskResult) -> None:
        with self._db.transaction(session=result.session_id):
            self._db.execute(sql.INSERT_TASK_RESULT, **msgspec.structs.asdict(result))

    @stored
    def save_summary(self, result: TaskResult) -> None:
        """Stores the short form of a result beside the whole."""
        with self._db.transaction(session=result.session_id):
            made = {"summary": result.context_summary or "", "new_model": result.summary_model}
            self._db.execute(sql.SUMMARIZE_TASK_RESULT, result=result.id, **made, new_cost=result.cost)

    @stored
    def load_results(self, result_ids: Sequence[str]) -> dict[str, TaskResult]:
        return {row.id: row for row in self._db.execute(sql.LIST_TASK_RESULTS, ids=json_text(result_ids))}

    @written(durable=True)
    def add_list(self, root_id: str, listed: StoredTaskList) -> None:
        """Stores a list of tasks with the conversation that works through it."""
        about = {"orders": listed.orders, "parallel": listed.parallel, "created_at": time.time()}
        self._db.execute(sql.INSERT_TASK_LIST, root_id=root_id, **about)
        tasks = [{"root_id": root_id, **msgspec.structs.asdict(task)} for task in listed.tasks]
        self._db.execute_many(sql.SAVE_LISTED_TASK, tasks)

    @stored
    def load_list(self, root_id: str) -> StoredTaskList | None:
        """The list that a conversation works through, if it has one."""
        whole = self._db.execute(sql.FIND_TASK_LIST, root=root_id).first()
        if whole is None:
            return None
        tasks = tuple(self._db.execute(sql.LIST_LISTED_TASKS, root=root_id))
        return StoredTaskList(whole.orders, whole.parallel, tasks)

    @stored
    def list_unfinished(self) -> dict[str, TasksDone]:
        """The conversations whose list is not done, and the progress of each."""
        rows = self._db.execute(sql.LIST_UNFINISHED_TASK_LISTS)
        return {row.root_id: TasksDone(row.done, row.tasks) for row in rows}

    @written(durable=True)
    def update(self, root_id: str, task: ListedTask) -> None:
        """The new state of a task of a list."""
        self._db.execute(sql.SAVE_LISTED_TASK, root_id=root_id, **msgspec.structs.asdict(task))


class UsageStore(Subject):
    @stored
    def load_lineage(self, session_id: str) -> list[tuple[str, Usage]]:
        """The usage that each model call from the root to this session reported, with its session."""
        return [
            (session, msgspec.json.decode(usage, type=Usage))
            for session, last in load_reach(self._db, session_id)
            for usage in self._db.execute(sql.LIST_USAGE_UP_TO, session=session, last=last).scalars()
        ]

    @stored
    def sum_conversation(self, root_id: str) -> Usage:
        """The usage of all sessions of a conversation: also of tasks, branches, and undone ones."""
        used = usage_figures(self._db.execute(sql.SUM_CONVERSATION_USAGE, root=root_id).one())
        # What summaries of reports cost, as earlier versions stored it.
        return used + Usage(cost=self._db.execute(sql.SUM_SUMMARY_COST, root=root_id).scalar())

    async def sum_project(self, folder: str, root_id: str, moment: float) -> Usage:
        """The usage since a moment of today: of the conversations below a folder, and of one more."""
        today = time.strftime("%Y-%m-%d", time.localtime(moment))
        sums = [each for each in await self.sum_since(moment) if each.day == today]
        roots = {each.root_id for each in sums if Path(each.cwd).is_relative_to(folder)} | {root_id}
        return sum((each.usage for each in sums if each.root_id in roots), Usage())

    @stored
    def sum_since(self, moment: float) -> list[UsageSum]:
        """The usage of all sessions that were continued since then, on whatever day, by day, model and
        conversation. Calls that left no message (titles, summaries) count on the last day of their session.
        """
        return [
            UsageSum(time.strftime("%Y-%m-%d", day), row.model, row.cwd, row.root_id, row.title, usage)
            for row in self._db.execute(sql.SUM_USAGE, since=moment)
            for *tokens, cost, _ in [msgspec.structs.astuple(usage_figures(row))]
            # Without negative figures and rounding errors.
            for usage in [Usage(*(max(0, round(n)) for n in tokens), cost=cost if cost > _MIN_COST else 0.0)]
            if usage.total or usage.cost
            for day in [time.localtime(row.quarter * _QUARTER_HOUR_S)]
        ]


_PREFIX = "whole output: "
_PATH = re.compile(r"[/\\](\w+)[/\\](output-\w+\.txt)")
_PIECE_BYTES = 8_000_000


def write_output(db: Database, root_id: str, name: str, data: bytes) -> None:
    """Inside a transaction on a server: replaces the output with that name."""
    db.execute(sql.DELETE_OUTPUT, root=root_id, output=name)
    for piece, start in enumerate(range(0, max(len(data), 1), _PIECE_BYTES)):
        part = data[start : start + _PIECE_BYTES]
        db.execute(sql.INSERT_OUTPUT, root_id=root_id, name=name, piece=piece, data=part)


class OutputStore(Subject):
    def __init__(self, thread: StorageThread, folder: Path | None) -> None:
        """`folder`: with the outputs of all conversations on this machine."""
        super().__init__(thread)
        self.folder = folder

    @property
    def in_database(self) -> bool:
        """Whether outputs are in the database, and not only beside it."""
        return self._thread.location.server is not None

    async def save_printed(self, message: Message) -> None:
        """Before a result that names an output is stored: the output itself, on a server."""
        if not self.in_database or self.folder is None or message.result is None:
            return
        for line in message.result.text.splitlines():
            path = line.partition(_PREFIX)[2]
            if (found := _PATH.search(path)) is None:
                continue
            root_id, name = found[1], found[2]
            file = self.folder / root_id / name
            if str(file) == path[: found.end()] and file.is_file():
                await self.save(root_id, name, await asyncio.to_thread(file.read_bytes))

    @stored
    def save(self, root_id: str, name: str, data: bytes) -> None:
        """Replaces the output with that name."""
        if not self.in_database:
            assert self.folder is not None
            write_private(private_dir(self.folder / root_id) / name, data)
            return
        with self._db.transaction(session=root_id):
            write_output(self._db, root_id, name, data)

    @stored
    def load(self, root_id: str, name: str) -> bytes | None:
        """An output of a conversation; None if it is not stored."""
        if not self.in_database:
            file = self.folder / root_id / name if self.folder else None
            return file.read_bytes() if file and file.exists() else None
        pieces = self._db.execute(sql.LIST_OUTPUT_PIECES, root=root_id, output=name).scalars()
        return b"".join(pieces) if pieces else None

    @stored
    def list_names(self) -> list[tuple[str, str]]:
        """All outputs: conversation and name."""
        if not self.in_database:
            files = sorted(self.folder.glob("*/output-*.txt")) if self.folder else ()
            return [(file.parent.name, file.name) for file in files]
        return [(row.root_id, row.name) for row in self._db.execute(sql.LIST_OUTPUTS)]
