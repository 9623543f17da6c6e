"""The door of storage: every read and write, in order, on one thread of its own.

SQLModel is imported on that thread when the first job arrives, so that opening a `Store` costs nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crushpy.access import Mode
from crushpy.marks import Mark
from crushpy.messages import Cut, Message, Pin, Todo, ToolCall, Usage
from crushpy.start_soon import start_soon
from crushpy.storage.audit_records import AuditChain, AuditEntry
from crushpy.storage.location import database_file
from crushpy.storage.records import (
    BoundaryInfo,
    BreakerState,
    Carried,
    ConversationRow,
    ImportRecord,
    MessagePlace,
    SearchHit,
    SessionBreak,
    SessionInfo,
    StorageError,
    TaskResult,
    UsageSum,
)
from crushpy.undo.states import FileState, RecordedChange

if TYPE_CHECKING:
    from crushpy.storage.database import Database

log = logging.getLogger(__name__)

T = TypeVar("T")
_A_MOMENT = 0.3
"""Seconds that a search, or a deletion, gives to the index."""
_A_PAUSE = 0.25
"""Seconds without a write after which the database does work of its own, and between two pieces of it."""
_BETWEEN = 0.01
ImportStep = Message | SessionBreak
EndOfImport = Callable[[], tuple[str, ImportRecord]]


class Store:
    """All conversations of one database.

    What is awaited is committed when the call returns. A write goes through even where the task that
    awaits it is cancelled, and even where the process ends before `close`. Every method raises
    `StorageError` where the database cannot be used, and may be called again once that is mended.
    """

    def __init__(self, database: Path, url: str = "") -> None:
        """`url` is the setting `database_url`; where it is empty the database is the file `database`."""
        self.file = database_file(database, url)
        self.warnings: list[str] = []
        """What a person should know of how the database was opened. Grows only while opening it."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        self._database: Database | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._tidy_task: asyncio.Task[None] | None = None

    def begin_import(self) -> None:
        """Loads SQLModel and opens the database in the background. A failure shows at the first job."""
        self._thread.submit(self._open)

    # --- sessions --------------------------------------------------------------------------------------

    async def create_session(self, info: SessionInfo, first: Message | None = None) -> None:
        """Stores a new session, and its first message with it: both or neither."""
        await self._do(lambda database: database.sessions.create(info, first))

    async def session(self, id_or_prefix: str) -> SessionInfo:
        """The session of this id, or the only one whose id starts so. `UsageError` where there is none."""
        return await self._do(lambda database: database.sessions.find(id_or_prefix))

    async def latest(self, cwd: str) -> SessionInfo | None:
        """The session to continue in this folder: the most recently updated one that has not ended."""
        return await self._do(lambda database: database.conversations.latest(cwd))

    async def conversation_tips(self, cwd: str | None = None, limit: int | None = None) -> list[SessionInfo]:
        """Conversations of this folder (or all), newest first, each as the session at its tip."""
        return await self._do(lambda database: database.conversations.tips(cwd, limit))

    async def conversation_rows(
        self, cwd: str | None = None, limit: int | None = None
    ) -> list[ConversationRow]:
        """The same as light rows, each with the messages of all the sessions that led to its tip."""
        if self._database is None:
            quick = self._thread.submit(self._quick_rows, cwd, limit)
            if (rows := await asyncio.wrap_future(quick)) is not None:
                return rows
        return await self._do(lambda database: database.conversations.rows(cwd, limit))

    async def lineage(self, session_id: str) -> list[SessionInfo]:
        """This session and those it continues, the first of them first."""
        return await self._do(lambda database: database.sessions.lineage(session_id))

    async def update_session(
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
        mode: Mode | None = None,
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
        while await self._do(lambda database: database.cleaning.rows_left()):
            pass
        deadline = time.monotonic() + _A_MOMENT
        while await self._do(lambda database: database.cleaning.words_left()):
            if time.monotonic() > deadline:
                break
        return deleted

    # --- messages and tool runs ------------------------------------------------------------------------

    async def messages(self, session_id: str) -> list[Message]:
        """The session's own messages, in order."""
        return await self._do(lambda database: database.sessions.messages(session_id))

    async def ends(self, session_id: str, many: int) -> list[Message]:
        """The session's first `many` messages and its last, in order, none twice."""
        return await self._do(lambda database: database.conversations.ends(session_id, many))

    async def prompts(self, cwd: str, limit: int) -> list[str]:
        """The last `limit` different texts that a user wrote in this folder, the latest last."""
        return await self._do(lambda database: database.conversations.prompts(cwd, limit))

    async def add_message(self, session_id: str, message: Message) -> None:
        """Appends a message and adds its usage to the session's."""
        self._tidy_soon()
        await self._do(lambda database: database.sessions.add_message(session_id, message))

    async def keep_draft(self, session_id: str, message: Message) -> None:
        """What has come of a reply so far, instead of what was kept before. Gone once the reply is stored."""
        await self._do(lambda database: database.drafts.keep(session_id, message))

    async def drop_draft(self, session_id: str) -> None:
        await self._do(lambda database: database.drafts.drop(session_id))

    async def draft(self, session_id: str, *, recover: bool) -> Message | None:
        """What is left of a reply whose process is gone. `recover` makes it a message of the session."""
        return await self._do(
            lambda database: (database.drafts.recover if recover else database.drafts.find)(session_id)
        )

    async def begin_call(self, session_id: str, message_id: str, call: ToolCall) -> None:
        """Stores the intent to run a call of that assistant message. Comes before anything is run."""
        await self._do(lambda database: database.sessions.begin_call(session_id, message_id, call))

    async def finish_call(self, session_id: str, message: Message) -> None:
        """Appends a tool message and closes the intent it answers, if one is open: both or neither."""
        self._tidy_soon()
        await self._do(lambda database: database.sessions.add_message(session_id, message))

    async def begun_calls(self, session_id: str) -> set[str]:
        """Ids of calls that have an intent and no result: they were interrupted, effects unknown."""
        return await self._do(lambda database: database.sessions.begun_calls(session_id))

    async def message(self, message_id: str, within: str) -> Message:
        """One message of this session, of those it continues, or of their tasks. `UsageError`: none such."""
        return await self._do(lambda database: database.search.message(message_id, within))

    async def find_message(self, id_or_prefix: str, within: str) -> MessagePlace:
        """A message of this session or of those it continues. `UsageError`: none such, or several."""
        return await self._do(lambda database: database.lookup.find(id_or_prefix, within))

    async def search(
        self, query: str, *, within: str | None = None, cwd: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        """Messages that hold the words of `query`, best first; `within` one session's lineage and tasks."""
        await self._catch_up(within)
        return await self._do(lambda database: database.search.find(query, within, cwd, limit))

    async def _catch_up(self, within: str | None) -> None:
        """Indexes what a search is about, in pieces: what a running turn has to store need not wait."""
        if within is not None:
            led = await self._do(lambda database: list(database.search.reach(within)))
            while await self._do(lambda database: database.index.add_some(led)):
                pass
            return
        deadline = time.monotonic() + _A_MOMENT
        while await self._do(lambda database: database.index.add_some()):
            if time.monotonic() > deadline:
                break

    async def unindexed(self) -> int:
        """How many messages a search cannot find yet."""
        return await self._do(lambda database: database.index.left())

    # --- the database's own work, for when there is time --------------------------------------------------

    async def tidy(self) -> bool:
        """A few milliseconds of it: the index grows, what was deleted leaves the file. False: all is done."""
        return await self._do(lambda database: database.tidy())

    def _tidy_soon(self) -> None:
        """Once nothing was written for a moment."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._tidying = asyncio.get_running_loop().call_later(_A_PAUSE, self._begin_tidying)

    def _begin_tidying(self) -> None:
        self._tidying = None
        self._tidy_task = start_soon(self._tidy_on())

    async def _tidy_on(self) -> None:
        with suppress(StorageError, RuntimeError):  # a search shows what is wrong; or the store was closed
            while self._tidying is None and await self.tidy():  # noqa: ASYNC110  # leaves room for others
                await asyncio.sleep(_BETWEEN)

    # --- boundaries ------------------------------------------------------------------------------------

    async def add_boundary(
        self,
        boundary: BoundaryInfo,
        child: SessionInfo,
        seed: Message | None,
        *,
        cuts: Sequence[Cut] = (),
        result: Message | None = None,
        ledger: str = "",
    ) -> None:
        """Ends the parent and opens the child: all or nothing. `result` is the parent's last message,
        `ledger` holds the facts of all sessions before the child."""
        await self._do(lambda database: database.boundaries.add(boundary, child, seed, cuts, result, ledger))

    async def ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one, as stored with its boundary; empty without one."""
        return await self._do(lambda database: database.boundaries.ledger(session_id))

    async def carried(self, session_id: str) -> Carried:
        """What a session's requests hold beside its own messages."""
        return await self._do(lambda database: database.boundaries.carried(session_id))

    async def add_usage(self, session_id: str, usage: Usage) -> None:
        """Adds to what a session used: a model call that left no message of its own."""
        await self._do(lambda database: database.sessions.add_usage(session_id, usage))

    async def add_cuts(self, session_id: str, cuts: Sequence[Cut]) -> None:
        await self._do(lambda database: database.boundaries.add_cuts(session_id, cuts))

    async def boundaries(self, root_id: str) -> list[BoundaryInfo]:
        """All boundaries of a conversation, oldest first."""
        return await self._do(lambda database: database.boundaries.of_conversation(root_id))

    async def boundary_before(self, session_id: str) -> BoundaryInfo | None:
        """The boundary that opened this session, undone or not; None for a root and for a fork."""
        return await self._do(lambda database: database.boundaries.before(session_id))

    async def reported_after(self, child_id: str, tokens: int) -> None:
        """Notes what the child's first reply said it used."""
        await self._do(lambda database: database.boundaries.reported(child_id, tokens))

    async def undo(self, boundary_id: str, note: Message) -> None:
        """Makes the parent the tip again, with `note` as its next message; the child stays as a branch."""
        await self._do(lambda database: database.boundaries.undo(boundary_id, note))

    async def tip(self, id_or_prefix: str) -> SessionInfo:
        """The session at the end of the boundaries that follow the one named; those undone do not count."""
        return await self._do(lambda database: database.boundaries.tip(id_or_prefix))

    async def conversation(self, root_id: str) -> list[SessionInfo]:
        """Every session of a conversation, oldest first: continuations, branches, tasks."""
        return await self._do(lambda database: database.boundaries.conversation(root_id))

    async def descendants(self, session_id: str) -> list[SessionInfo]:
        """This session and all that came out of it."""
        return await self._do(lambda database: database.boundaries.descendants(session_id))

    async def lineage_messages(self, session_id: str) -> list[Message]:
        """All messages from the root to this session, each as far as it led here."""
        return await self._do(lambda database: database.boundaries.lineage_messages(session_id))

    async def reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did."""
        return await self._do(lambda database: database.boundaries.reach(session_id))

    async def lineage_usage(self, session_id: str) -> list[tuple[str, Usage]]:
        """What each model call from the root to this session reported, with the session it was made in."""
        return await self._do(lambda database: database.boundaries.lineage_usage(session_id))

    async def usage_since(self, moment: float) -> list[UsageSum]:
        """What all sessions used that went on since then, by day, model and conversation."""
        return await self._do(lambda database: database.usage_sums.since(moment))

    # --- pins ------------------------------------------------------------------------------------------

    async def pins(self, root_id: str) -> list[Pin]:
        """What is pinned in a conversation, by number."""
        return await self._do(lambda database: database.pins.of(root_id))

    async def add_pin(self, root_id: str, pin: Pin, known: Sequence[int]) -> Pin | None:
        """Stores a pin under the next number. None where there are others by now than those `known`."""
        return await self._do(lambda database: database.pins.add(root_id, pin, known))

    async def remove_pin(self, root_id: str, number: int) -> Pin:
        """Takes a pin away, and gives it. `UsageError` where there is none of that number."""
        return await self._do(lambda database: database.pins.remove(root_id, number))

    # --- marks -----------------------------------------------------------------------------------------

    def keep_mark(self, session_id: str, mark: Mark) -> None:
        """Stores what happened between messages. Nobody waits for it; a failure is only logged."""
        with suppress(RuntimeError):  # closed meanwhile
            kept = self._thread.submit(self._work, lambda database: database.marks.add(session_id, mark))
            kept.add_done_callback(_log_failure)

    async def marks(self, session_id: str, carried: Sequence[str] = ()) -> list[Mark]:
        """The marks of a session, and those after messages that were carried into it."""
        return await self._do(lambda database: database.marks.of(session_id, carried))

    # --- the audit -------------------------------------------------------------------------------------

    async def add_audit(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the chain of a conversation: all or none."""
        await self._do(lambda database: database.audit.add(root_id, entries))

    async def audit_chain(self, root_id: str) -> AuditChain:
        """All that is recorded of a conversation, deleted or not."""
        return await self._do(lambda database: database.audit.chain(root_id))

    async def audited(self, prefix: str = "") -> list[str]:
        """The conversations there are records of whose ids begin so."""
        return await self._do(lambda database: database.audit.conversations(prefix))

    # --- tasks -----------------------------------------------------------------------------------------

    async def add_task_result(self, result: TaskResult) -> None:
        await self._do(lambda database: database.task_results.add(result))

    async def summarise_task_result(self, result: TaskResult) -> None:
        """Keeps the short form of a result beside the whole."""
        await self._do(lambda database: database.task_results.summarise(result))

    async def task_usage(self, root_id: str) -> Usage:
        """What all tasks of a conversation used together."""
        return await self._do(lambda database: database.task_results.usage(root_id))

    # --- changed files ---------------------------------------------------------------------------------

    async def add_changes(
        self, changes: Sequence[RecordedChange], message_id: str = "", since: int | None = None
    ) -> None:
        """Records what was done to files, as part of a message (the latest where none is named).

        Nothing where that batch is recorded already. With `since`, a change's number: without those that
        another conversation recorded after it, word for word the same.
        """
        await self._do(lambda database: database.file_changes.add(changes, message_id, since))

    async def finish_changes(self, batch: str, after: Mapping[str, FileState]) -> None:
        """Says what became of the files of a batch; those that are as they were are taken out."""
        await self._do(lambda database: database.file_changes.finish(batch, after))

    async def changes(self, root_id: str) -> list[RecordedChange]:
        """All changes of a conversation to files, oldest first."""
        return await self._do(lambda database: database.file_changes.of(root_id))

    async def last_change(self) -> int:
        """The number of the latest change of any conversation; 0 where there is none."""
        return await self._do(lambda database: database.file_changes.last())

    async def message_numbers(self, message_ids: Sequence[str]) -> dict[str, int]:
        """How storage counts these messages, over all conversations."""
        return await self._do(lambda database: database.file_changes.message_numbers(message_ids))

    # --- what other agents kept ------------------------------------------------------------------------

    async def import_record(self, source: str, foreign_id: str) -> ImportRecord | None:
        """How far that session of another agent was imported; None where it was not."""
        return await self._do(lambda database: database.imports.find(source, foreign_id))

    async def was_continued(self, record: ImportRecord) -> bool:
        """Whether an imported conversation went on here."""
        return await self._do(lambda database: database.imports.was_continued(record))

    async def import_conversation(
        self, first: SessionInfo | None, tip_id: str, steps: Iterator[ImportStep], end: EndOfImport
    ) -> None:
        """Stores what `steps` gives, as it comes, in one transaction: in the new session `first`, or at the
        end of `tip_id`. `end` is asked last for the title of a new conversation and for its record."""
        await self._do(lambda database: database.imports.write(first, tip_id, steps, end))

    # --- one writer ------------------------------------------------------------------------------------

    async def take_lease(self, session_id: str) -> bool:
        """Makes this process the only one that writes to a session. Raises `SessionBusy` where one does.

        False where this process was that already.
        """
        return await self._do(lambda database: database.leases.take(session_id))

    async def drop_lease(self, session_id: str) -> None:
        """Lets other processes write again to one session."""
        await self._do(lambda database: database.leases.drop_one(session_id))

    async def drop_leases(self) -> None:
        """Lets other processes write again to what this one wrote to."""
        await self._do(lambda database: database.leases.drop())

    # --- the database itself ---------------------------------------------------------------------------

    async def check(self) -> list[str]:
        """Reads the whole database; what is wrong with it, one line each. Empty where it is sound."""
        return await self._do(lambda database: database.connection.check())

    async def close(self) -> None:
        """Finishes what is queued and closes the file. The store cannot be used afterwards."""
        if self._tidying is not None:
            self._tidying.cancel()
        try:
            closing = self._thread.submit(self._close)
        except RuntimeError:  # closed before
            return
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    async def _do(self, job: Callable[["Database"], T]) -> T:
        future = self._thread.submit(self._work, job)
        # Shielded: cancelling whoever waits must not take a queued write back.
        return await asyncio.shield(asyncio.wrap_future(future))

    # What follows runs on the storage thread.

    def _work(self, job: Callable[["Database"], T]) -> T:
        from crushpy.storage.faults import explained

        with explained(self.file):
            return job(self._open())

    def _open(self) -> "Database":
        if self._database is None:
            from crushpy.storage.open_database import open_database

            self._database = open_database(self.file, self.warnings)
        return self._database

    def _quick_rows(self, cwd: str | None, limit: int | None) -> list[ConversationRow] | None:
        from crushpy.storage.quick_list import quick_rows

        return quick_rows(self.file, cwd, limit)

    def _close(self) -> None:
        if self._database is not None:
            self._database.connection.close()
            self._database = None


def _log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.warning("a mark was not stored: %s", error)
