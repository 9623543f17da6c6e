"""What else is kept of a conversation, and who may write to it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from crushpy.core.messages import Usage
from crushpy.core.timeline_notes import TimelineNote
from crushpy.storage.audit_records import AuditChain, AuditEntry
from crushpy.storage.call_records import CallDecided
from crushpy.storage.door.storage_thread import StorageThread
from crushpy.storage.records import (
    ImportReading,
    ImportRecord,
    ListedTask,
    SessionInfo,
    StoredTaskList,
    TaskResult,
    TasksDone,
)
from crushpy.undo.states import FileState, RecordedChange

log = logging.getLogger(__name__)


class StoredRecords(StorageThread):
    """Marks, the audit, lists of tasks and their results, changed files, imports, leases."""

    # --- marks -----------------------------------------------------------------------------------------

    def keep_mark(self, session_id: str, mark: TimelineNote) -> None:
        """Stores what happened between messages. Nobody waits for it; a failure is only logged."""
        with suppress(RuntimeError):  # closed meanwhile
            self._calls.send()
            kept = self._thread.submit(
                self._backend.work, lambda database: database.marks.add(session_id, mark)
            )
            kept.add_done_callback(_log_failure)

    async def marks(self, session_id: str, carried: Sequence[str] = ()) -> list[TimelineNote]:
        """The marks of a session, and those after messages that were carried into it."""
        return await self._do(lambda database: database.marks.of(session_id, carried))

    # --- the audit -------------------------------------------------------------------------------------

    async def add_audit(self, root_id: str, entries: Sequence[AuditEntry]) -> None:
        """Adds records to the chain of a conversation: all or none."""
        await self._calls.write(CallDecided(root_id, entries))

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

    async def task_results(self, result_ids: Sequence[str]) -> dict[str, TaskResult]:
        """What tasks gave back, by the ids of their results."""
        return await self._do(lambda database: database.task_results.of(result_ids))

    async def add_task_list(self, root_id: str, listed: StoredTaskList) -> None:
        """Keeps a list of tasks with the conversation that works through it."""
        await self._do(lambda database: database.task_lists.add(root_id, listed))

    async def task_list(self, root_id: str) -> StoredTaskList | None:
        """The list that a conversation works through; None where it is none of that kind."""
        return await self._do(lambda database: database.task_lists.find(root_id))

    async def unfinished_task_lists(self) -> dict[str, TasksDone]:
        """The conversations whose list is not done, and how far each is."""
        return await self._do(lambda database: database.task_lists.unfinished())

    async def update_listed_task(self, root_id: str, task: ListedTask) -> None:
        """How a task of a list stands now."""
        await self._do(lambda database: database.task_lists.update(root_id, task))

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

    async def change_states(self, after: int) -> tuple[int, list[FileState]]:
        """What paths held in some of the changes of all conversations, from the one after this number on;
        and the number to go on with, 0 where there is none left."""
        return await self._do(lambda database: database.file_changes.states(after))

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
        self, first: SessionInfo | None, tip_id: str, begin: Callable[[], ImportReading]
    ) -> None:
        """Stores what is read, as it comes, in one transaction: in the new session `first`, or at the end of
        `tip_id`. Where the connection is lost it is begun again: with a new reading, from the beginning."""
        await self._do(lambda database: database.imports.write(first, tip_id, begin()))

    # --- one writer ------------------------------------------------------------------------------------

    async def take_lease(self, session_id: str) -> bool:
        """Makes this process the only one that writes to a session. Raises `SessionBusy` where one does.

        False where this process was that already.
        """
        fresh = await self._do(lambda database: database.leases.take(session_id))
        self._begin_beating()
        return fresh

    async def drop_lease(self, session_id: str) -> None:
        """Lets other processes write again to one session."""
        await self._do(lambda database: database.leases.drop_one(session_id))

    async def drop_leases(self) -> None:
        """Lets other processes write again to what this one wrote to."""
        await self._do(lambda database: database.leases.drop())


def _log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.warning("a mark was not stored: %s", error)
