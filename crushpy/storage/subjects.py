"""The parts of the API, subject by subject."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from crushpy.core.access import Mode
from crushpy.core.messages import Cut, Data, Message, Pin, Todo, ToolCall, Usage
from crushpy.core.timeline_notes import TimelineNote
from crushpy.storage.audit_records import AuditChain, AuditEntry
from crushpy.storage.call_records import CallAnswered, CallBegun, CallDecided, CallStart
from crushpy.storage.records import (
    EVERYTHING,
    BoundaryInfo,
    BreakerState,
    CannotWriteNow,
    Carried,
    ConversationRow,
    ImportReading,
    ImportRecord,
    ListedTask,
    MessagePlace,
    SearchHit,
    SessionInfo,
    StoredTaskList,
    TaskResult,
    TasksDone,
    UsageSum,
)
from crushpy.storage.storage_thread import StorageThread
from crushpy.undo.states import FileState, RecordedChange

if TYPE_CHECKING:
    from crushpy.storage.database import Database
    from crushpy.storage.row_transfer import RowDigest

log = logging.getLogger(__name__)
_INDEX_SECONDS = 0.3
"""Time that a search or a deletion gives to the index."""
_GAP = 0.003
"""Seconds between the steps of a deletion at least, if only one process may write at a time."""
_ANNOUNCED = "whole output: "
_NAME = re.compile(r"[/\\](\w+)[/\\](output-\w+\.txt)")


class Subject:
    """A part of the API; its methods run their statements on the storage thread."""

    def __init__(self, thread: StorageThread) -> None:
        self._thread = thread
        self._do = thread.do
        self._calls = thread.calls
        self._backend = thread.backend


class StoredSessions(Subject):
    async def create(
        self, info: SessionInfo, first: Message | None = None, facts: Data | None = None
    ) -> None:
        """Stores a new session, and its first message (with the facts of that) with it: both or neither."""
        known = {first.id: facts} if first is not None and facts is not None else {}
        await self._do(lambda database: database.sessions.create(info, first, known))

    async def find(self, id_or_prefix: str) -> SessionInfo:
        """The session of this id, or the only one whose id starts so. `UsageError` where there is none."""
        return await self._do(lambda database: database.sessions.find(id_or_prefix))

    async def find_latest(self, cwd: str) -> SessionInfo | None:
        """The session to continue in this folder: the most recently updated one that has not ended."""
        return await self._do(lambda database: database.conversations.latest(cwd))

    async def list_tips(self, cwd: str | None = None, limit: int | None = None) -> list[SessionInfo]:
        """Conversations of this folder (or all), newest first, each as the session at its tip."""
        return await self._do(lambda database: database.conversations.tips(cwd, limit))

    async def load_tip_page(
        self, cwd: str | None, many: int, after: SessionInfo | None = None
    ) -> list[SessionInfo]:
        """A page of the same, behind `after`, the last of the page before. Each counts the messages of all
        the sessions that led to it."""
        return await self._do(lambda database: database.conversations.tip_page(cwd, many, after))

    async def list_conversations(
        self, cwd: str | None = None, limit: int | None = None
    ) -> list[ConversationRow]:
        """The same as light rows, each with the messages of all the sessions that led to its tip."""
        return await self._do(lambda database: database.conversations.rows(cwd, limit))

    async def load_lineage(self, session_id: str) -> list[SessionInfo]:
        """This session and those it continues, the first of them first."""
        return await self._do(lambda database: database.sessions.lineage(session_id))

    async def update(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        compaction: str | None = None,
        system: str | None = None,
        todos: tuple[Todo, ...] | None = None,
        grants: tuple[str, ...] | None = None,
        breaker: BreakerState | None = None,
        mode: Mode | Literal[""] | None = None,
        end_reason: str | None = None,
    ) -> None:
        """Changes what is given. An `end_reason` ends the session; an empty one opens it again."""
        await self._do(
            lambda database: database.sessions.update(
                session_id,
                title=title,
                model=model,
                compaction=compaction,
                system=system,
                todos=todos,
                grants=grants,
                breaker=breaker,
                mode=mode,
                end_reason=end_reason,
            )
        )

    async def rename_conversation(self, root_id: str, title: str) -> None:
        """Gives every session of a conversation this title, its tasks excepted."""
        await self._do(lambda database: database.conversations.rename(root_id, title))

    async def delete_conversation(self, root_id: str) -> int:
        """Deletes every session of a conversation with all that hangs on it; how many sessions there were.

        Nobody sees it from the first moment on. Its rows are overwritten before this returns, in steps
        between which others write; where the index is large, words of it may leave that later (`tidy`).
        """
        deleted = await self._do(lambda database: database.cleaning.mark(root_id))
        while await self._step(lambda database: database.cleaning.rows_left()):
            pass
        deadline = time.monotonic() + _INDEX_SECONDS
        while await self._step(lambda database: database.cleaning.words_left()):
            if time.monotonic() > deadline:
                break
        return deleted

    async def add_usage(self, session_id: str, usage: Usage) -> None:
        """Adds to what a session used: a model call that left no message of its own."""
        await self._do(lambda database: database.sessions.add_usage(session_id, usage))

    async def find_tip(self, id_or_prefix: str) -> SessionInfo:
        """The session at the end of the boundaries that follow the one named; those undone do not count."""
        return await self._do(lambda database: database.boundaries.tip(id_or_prefix))

    async def load_conversation(self, root_id: str) -> list[SessionInfo]:
        """Every session of a conversation, oldest first: continuations, branches, tasks."""
        return await self._do(lambda database: database.boundaries.conversation(root_id))

    async def load_descendants(self, session_id: str) -> list[SessionInfo]:
        """This session and all that came out of it."""
        return await self._do(lambda database: database.boundaries.descendants(session_id))

    async def _step(self, job: "Callable[[Database], bool]") -> bool:
        """Whether something is left to do. Leaves room for others."""
        began = time.monotonic()
        left = await self._do(job)
        if left and self._backend.one_writer:
            await asyncio.sleep(max(_GAP, time.monotonic() - began))
        return left


class StoredMessages(Subject):
    async def load(self, session_id: str) -> list[Message]:
        """The session's own messages, in order."""
        return await self._do(lambda database: database.sessions.messages(session_id))

    async def load_ends(self, session_id: str, many: int) -> list[Message]:
        """The session's first `many` messages and its last, in order, none twice."""
        return await self._do(lambda database: database.conversations.ends(session_id, many))

    async def list_prompts(self, cwd: str, limit: int) -> list[str]:
        """The last `limit` different texts that a user wrote in this folder, the latest last."""
        return await self._do(lambda database: database.conversations.prompts(cwd, limit))

    async def add(self, session_id: str, message: Message, facts: Data | None = None) -> None:
        """Appends a message, with its facts where they are known, and adds its usage to the session's."""
        self._thread.tidy_soon()
        known = {message.id: facts} if facts is not None else {}
        await self._do(lambda database: database.sessions.add_message(session_id, message, known))

    async def save_draft(self, session_id: str, message: Message) -> None:
        """What has come of a reply so far, instead of what was kept before. Gone once the reply is stored."""
        await self._do(lambda database: database.drafts.keep(session_id, message))

    async def delete_draft(self, session_id: str) -> None:
        await self._do(lambda database: database.drafts.drop(session_id))

    async def load_draft(self, session_id: str, *, recover: bool) -> Message | None:
        """What is left of a reply whose process is gone. `recover` makes it a message of the session."""
        return await self._do(
            lambda database: (database.drafts.recover if recover else database.drafts.find)(session_id)
        )

    async def get(self, message_id: str, within: str) -> Message:
        """One message of this session, of those it continues, or of their tasks. `UsageError`: none such."""
        return await self._do(lambda database: database.search.message(message_id, within))

    async def find(self, id_or_prefix: str, within: str) -> MessagePlace:
        """A message of this session or of those it continues. `UsageError`: none such, or several."""
        return await self._do(lambda database: database.lookup.find(id_or_prefix, within))

    async def load_facts(self, session_id: str, last: int = EVERYTHING) -> list[str | None]:
        """For each message of a session up to number `last` (see `reach`) its facts; None where they are
        not stored."""
        return await self._do(lambda database: database.facts.of(session_id, last))

    async def save_facts(self, session_id: str, facts: Mapping[str, Data]) -> None:
        """Stores the facts of messages, by their ids, that were stored without them."""
        await self._do(lambda database: database.facts.keep(session_id, facts))

    async def load_lineage(self, session_id: str) -> list[Message]:
        """All messages from the root to this session, each as far as it led here."""
        return await self._do(lambda database: database.boundaries.lineage_messages(session_id))

    async def load_page(self, session_id: str, last: int, after: int) -> tuple[list[Message], int]:
        """Some messages of a session up to number `last` (see `reach`), and where the next page begins.

        The first page begins `after` 0; a page without messages is the last.
        """
        return await self._do(lambda database: database.pages.page(session_id, last, after))

    async def load_numbers(self, message_ids: Sequence[str]) -> dict[str, int]:
        """How storage counts these messages, over all conversations."""
        return await self._do(lambda database: database.file_changes.message_numbers(message_ids))


class StoredCalls(Subject):
    def __init__(self, thread: StorageThread, outputs: "StoredOutputs") -> None:
        super().__init__(thread)
        self._outputs = outputs

    async def begin(self, session_id: str, message_id: str, call: ToolCall) -> None:
        """Stores the intent to run a call of that assistant message. Comes before anything is run."""
        await self._calls.write(CallBegun(session_id, message_id, call))

    async def finish(
        self,
        session_id: str,
        message: Message,
        start: CallStart | None = None,
        facts: Data | None = None,
    ) -> None:
        """Appends a tool message and closes the intent it answers, if one is open: both or neither.

        `start`: of a call that changes nothing, what was decided about it and how it began, stored with it.
        """
        await self._outputs.keep_printed(message)
        self._thread.tidy_soon()
        await self._calls.write(CallAnswered(session_id, message, start, facts))

    async def list_open(self, session_id: str) -> set[str]:
        """Ids of calls that have an intent and no result: they were interrupted, effects unknown."""
        return await self._do(lambda database: database.sessions.begun_calls(session_id))


class StoredBoundaries(Subject):
    async def add(
        self,
        boundary: BoundaryInfo,
        child: SessionInfo,
        seed: Message | None,
        *,
        cuts: Sequence[Cut] = (),
        result: Message | None = None,
        ledger: str = "",
        facts: Mapping[str, Data] = MappingProxyType({}),
    ) -> None:
        """Ends the parent and opens the child: all or nothing. `result` is the parent's last message,
        `ledger` holds the facts of all sessions before the child, `facts` those of result and seed."""
        await self._do(
            lambda database: database.boundaries.add(boundary, child, seed, cuts, result, ledger, facts)
        )

    async def load_ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one, as stored with its boundary; empty without one."""
        return await self._do(lambda database: database.boundaries.ledger(session_id))

    async def load_carried(self, session_id: str) -> Carried:
        """What a session's requests hold beside its own messages."""
        return await self._do(lambda database: database.boundaries.carried(session_id))

    async def add_overrides(self, session_id: str, cuts: Sequence[Cut]) -> None:
        await self._do(lambda database: database.boundaries.add_cuts(session_id, cuts))

    async def load_conversation(self, root_id: str) -> list[BoundaryInfo]:
        """All boundaries of a conversation, oldest first."""
        return await self._do(lambda database: database.boundaries.of_conversation(root_id))

    async def find_opening(self, session_id: str) -> BoundaryInfo | None:
        """The boundary that opened this session, undone or not; None for a root and for a fork."""
        return await self._do(lambda database: database.boundaries.before(session_id))

    async def record_reported_tokens(self, child_id: str, tokens: int) -> None:
        """Notes what the child's first reply said it used."""
        await self._do(lambda database: database.boundaries.reported(child_id, tokens))

    async def undo(self, boundary_id: str, note: Message) -> None:
        """Makes the parent the tip again, with `note` as its next message; the child stays as a branch."""
        await self._do(lambda database: database.boundaries.undo(boundary_id, note))

    async def load_overrides(self, session_id: str) -> list[Cut]:
        """How messages of this session and of those it continues are sent, the first session's first."""
        return await self._do(lambda database: database.pages.lineage_cuts(session_id))

    async def load_reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did."""
        return await self._do(lambda database: database.boundaries.reach(session_id))


class StoredUsage(Subject):
    async def load_lineage(self, session_id: str) -> list[tuple[str, Usage]]:
        """What each model call from the root to this session reported, with the session it was made in."""
        return await self._do(lambda database: database.boundaries.lineage_usage(session_id))

    async def sum_since(self, moment: float) -> list[UsageSum]:
        """What all sessions used that went on since then, by day, model and conversation."""
        return await self._do(lambda database: database.usage_sums.since(moment))

    async def sum_tasks(self, root_id: str) -> Usage:
        """What all tasks of a conversation used together."""
        return await self._do(lambda database: database.task_results.usage(root_id))


class StoredPins(Subject):
    async def load(self, root_id: str) -> list[Pin]:
        """What is pinned in a conversation, by number."""
        return await self._do(lambda database: database.pins.of(root_id))

    async def add(self, root_id: str, pin: Pin, known: Sequence[int]) -> Pin | None:
        """Stores a pin under the next number. None where there are others by now than those `known`."""
        return await self._do(lambda database: database.pins.add(root_id, pin, known))

    async def remove(self, root_id: str, number: int) -> Pin:
        """Takes a pin away, and gives it. `UsageError` where there is none of that number."""
        return await self._do(lambda database: database.pins.remove(root_id, number))


class StoredNotes(Subject):
    def record(self, session_id: str, mark: TimelineNote) -> None:
        """Stores what happened between messages. Nobody waits for it; a failure is only logged."""
        with suppress(RuntimeError):  # closed meanwhile
            self._calls.send()
            kept = self._thread.submit(lambda database: database.marks.add(session_id, mark))
            kept.add_done_callback(_log_failure)

    async def load(self, session_id: str, carried: Sequence[str] = ()) -> list[TimelineNote]:
        """The marks of a session, and those after messages that were carried into it."""
        return await self._do(lambda database: database.marks.of(session_id, carried))


class StoredAudit(Subject):
    async def append(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the chain of a conversation: all or none."""
        await self._calls.write(CallDecided(root_id, entries))

    async def load_chain(self, root_id: str) -> AuditChain:
        """All that is recorded of a conversation, deleted or not."""
        return await self._do(lambda database: database.audit.chain(root_id))

    async def list_conversations(self, prefix: str = "") -> list[str]:
        """The conversations there are records of whose ids begin so."""
        return await self._do(lambda database: database.audit.conversations(prefix))


class StoredTasks(Subject):
    async def add_result(self, result: TaskResult) -> None:
        await self._do(lambda database: database.task_results.add(result))

    async def save_summary(self, result: TaskResult) -> None:
        """Keeps the short form of a result beside the whole."""
        await self._do(lambda database: database.task_results.summarise(result))

    async def load_results(self, result_ids: Sequence[str]) -> dict[str, TaskResult]:
        """What tasks gave back, by the ids of their results."""
        return await self._do(lambda database: database.task_results.of(result_ids))

    async def add_list(self, root_id: str, listed: StoredTaskList) -> None:
        """Keeps a list of tasks with the conversation that works through it."""
        await self._do(lambda database: database.task_lists.add(root_id, listed))

    async def load_list(self, root_id: str) -> StoredTaskList | None:
        """The list that a conversation works through; None where it is none of that kind."""
        return await self._do(lambda database: database.task_lists.find(root_id))

    async def list_unfinished(self) -> dict[str, TasksDone]:
        """The conversations whose list is not done, and how far each is."""
        return await self._do(lambda database: database.task_lists.unfinished())

    async def update(self, root_id: str, task: ListedTask) -> None:
        """How a task of a list stands now."""
        await self._do(lambda database: database.task_lists.update(root_id, task))


class StoredFileChanges(Subject):
    async def add(
        self, changes: Sequence[RecordedChange], message_id: str = "", since: int | None = None
    ) -> None:
        """Records what was done to files, as part of a message (the latest where none is named).

        Nothing where that batch is recorded already. With `since`, a change's number: without those that
        another conversation recorded after it, word for word the same.
        """
        await self._do(lambda database: database.file_changes.add(changes, message_id, since))

    async def finish(self, batch: str, after: Mapping[str, FileState]) -> None:
        """Says what became of the files of a batch; those that are as they were are taken out."""
        await self._do(lambda database: database.file_changes.finish(batch, after))

    async def load(self, root_id: str) -> list[RecordedChange]:
        """All changes of a conversation to files, oldest first."""
        return await self._do(lambda database: database.file_changes.of(root_id))

    async def load_states(self, after: int) -> tuple[int, list[FileState]]:
        """What paths held in some of the changes of all conversations, from the one after this number on;
        and the number to go on with, 0 where there is none left."""
        return await self._do(lambda database: database.file_changes.states(after))

    async def get_last_number(self) -> int:
        """The number of the latest change of any conversation; 0 where there is none."""
        return await self._do(lambda database: database.file_changes.last())


class StoredImports(Subject):
    async def find_record(self, source: str, foreign_id: str) -> ImportRecord | None:
        """How far that session of another agent was imported; None where it was not."""
        return await self._do(lambda database: database.imports.find(source, foreign_id))

    async def was_continued(self, record: ImportRecord) -> bool:
        """Whether an imported conversation went on here."""
        return await self._do(lambda database: database.imports.was_continued(record))

    async def write(self, first: SessionInfo, replaced: str, begin: Callable[[], ImportReading]) -> None:
        """Stores a conversation that begins with the session `first` while it is read, and deletes the one
        named by `replaced`, if any, in one transaction. A retry after a lost connection reads again."""
        await self._do(lambda database: database.imports.write(first, replaced, begin()))


class StoredLeases(Subject):
    async def acquire(self, session_id: str) -> bool:
        """Makes this process the only one that writes to a session. Raises `SessionBusy` where one does.

        False where this process was that already.
        """
        fresh = await self._do(lambda database: database.leases.take(session_id))
        self._thread.begin_beating()
        return fresh

    async def release(self, session_id: str) -> None:
        """Lets other processes write again to one session."""
        await self._do(lambda database: database.leases.drop_one(session_id))

    async def release_all(self) -> None:
        """Lets other processes write again to what this one wrote to."""
        await self._do(lambda database: database.leases.drop())


class StoredOutputs(Subject):
    folder: Path | None = None
    """Where this machine keeps the outputs of all conversations."""

    async def keep_printed(self, message: Message) -> None:
        """Before a result that names an output is stored: the output itself, where others may ask for it."""
        if not self._backend.keeps_outputs or self.folder is None or message.result is None:
            return
        for path, root_id, name in _printed_paths(message.result.text):
            file = self.folder / root_id / name
            if str(file) != path or not file.is_file():
                continue
            data = await asyncio.to_thread(file.read_bytes)
            await self.save(root_id, name, data)

    async def save(self, root_id: str, name: str, data: bytes) -> None:
        """Stores an output in the database, where it keeps such."""
        await self._do(lambda database: database.outputs.keep(root_id, name, data))

    async def load(self, root_id: str, name: str) -> bytes | None:
        """An output of a conversation; None where the database has none of that name."""
        return await self._do(lambda database: database.outputs.find(root_id, name))

    async def list_names(self) -> list[tuple[str, str]]:
        """All outputs that the database keeps: conversation and name."""
        return await self._do(lambda database: list(database.outputs.names()))


class StoredSearch(Subject):
    async def find(
        self, query: str, *, within: str | None = None, cwd: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        """Messages that hold the words of `query`, best first; `within` one session's lineage and tasks."""
        with suppress(CannotWriteNow):  # what is there is found
            await self._catch_up(within)
        return await self._do(lambda database: database.search.find(query, within, cwd, limit))

    async def index_more(self) -> int:
        """Gives the index a moment; how many messages a search cannot find after it. `CannotWriteNow` where
        others write."""
        await self._catch_up(None)
        return await self.count_unindexed()

    async def count_unindexed(self) -> int:
        """How many messages a search cannot find yet."""
        return await self._do(lambda database: database.index.left())

    async def _catch_up(self, within: str | None) -> None:
        """Indexes what a search is about, in pieces: what a running turn has to store need not wait."""
        led: list[str] = []
        deadline = time.monotonic() + _INDEX_SECONDS
        if within is not None:
            led = await self._do(lambda database: list(database.search.reach(within)))
            deadline = math.inf
        while await self._do(lambda database: _add_some(database, led)):
            if time.monotonic() > deadline:
                break


class StoredTransfer(Subject):
    async def find_unfinished_copy(self) -> str | None:
        """Where the copy comes from that was interrupted here; None where there is none."""
        return await self._do(lambda database: database.copy_state.unfinished())

    async def begin_copy(self, source: str) -> None:
        """Until `finish_copy` nobody else can open this database."""
        await self._do(lambda database: database.copy_state.begin(source))

    async def list_tables(self) -> list[str]:
        def tables(_: Any) -> list[str]:
            from crushpy.storage.row_transfer import copied_tables

            return copied_tables()

        return await self._do(tables)

    async def finish_deletions(self) -> None:
        """Takes out what is left of conversations that were deleted."""
        while await self._do(lambda database: database.cleaning.rows_left()):
            pass

    async def load_session_ids(self) -> set[str]:
        return await self._do(lambda database: database.transfer.session_ids())

    async def count_rows(self, table: str) -> int:
        return await self._do(lambda database: database.transfer.count(table))

    async def load_page(
        self, table: str, after: tuple[Any, ...] | None
    ) -> tuple[list[dict[str, Any]], tuple[Any, ...] | None]:
        return await self._do(lambda database: database.transfer.page(table, after))

    async def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> int:
        return await self._do(lambda database: database.transfer.add(table, rows))

    async def set_parents(self, parents: Mapping[str, str]) -> None:
        await self._do(lambda database: database.transfer.set_parents(parents))

    async def reset_sequences(self) -> None:
        """The next row of each table gets a number behind those that were copied."""
        await self._do(lambda database: database.transfer.count_on())

    async def finish_copy(self) -> None:
        await self._do(lambda database: database.copy_state.finish())

    async def load_digests(self, table: str) -> "dict[str, RowDigest]":
        """What a table holds, session by session."""
        return await self._do(lambda database: database.transfer.digests(table))


def _log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.warning("a note was not stored: %s", error)


def _add_some(database: "Database", sessions: Sequence[str]) -> bool:
    with database.connection.briefly():
        return database.index.add_some(sessions)


def _printed_paths(text: str) -> Iterator[tuple[str, str, str]]:
    """The paths that a result names, each with the conversation and the file's name in it."""
    for line in text.splitlines():
        path = line.partition(_ANNOUNCED)[2]
        if found := _NAME.search(path):
            yield path[: found.end()], found[1], found[2]
