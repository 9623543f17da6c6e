"""The API of storage: every read and write, in order, on one thread of its own."""

from collections.abc import Callable
from pathlib import Path

from crushpy.storage.storage_thread import StorageThread
from crushpy.storage.subjects import (
    StoredAudit,
    StoredBoundaries,
    StoredCalls,
    StoredFileChanges,
    StoredImports,
    StoredLeases,
    StoredMessages,
    StoredNotes,
    StoredOutputs,
    StoredPins,
    StoredSearch,
    StoredSessions,
    StoredTasks,
    StoredTransfer,
    StoredUsage,
)


class Store:
    """All conversations of one database.

    What is awaited is committed when the call returns. A write goes through even if the task that
    awaits it is cancelled, and even if the process ends before `close`. Every method raises
    `StorageError` if the database cannot be used, and may be called again once that is fixed.
    """

    def __init__(self, database: Path, url: str = "") -> None:
        """`url` is the setting `database_url`; if it is empty the database is the file `database`."""
        thread = self._thread = StorageThread(database, url)
        self.outputs = StoredOutputs(thread)
        self.sessions = StoredSessions(thread)
        self.messages = StoredMessages(thread)
        self.calls = StoredCalls(thread, self.outputs)
        self.boundaries = StoredBoundaries(thread)
        self.usage = StoredUsage(thread)
        self.pins = StoredPins(thread)
        self.notes = StoredNotes(thread)
        self.audit = StoredAudit(thread)
        self.tasks = StoredTasks(thread)
        self.file_changes = StoredFileChanges(thread)
        self.imports = StoredImports(thread)
        self.leases = StoredLeases(thread)
        self.search = StoredSearch(thread)
        self.transfer = StoredTransfer(thread)

    @property
    def place(self) -> str:
        """How people name the database: a file, or an address without its password."""
        return self._thread.backend.place

    @property
    def exists(self) -> bool:
        """False if the first write would create the database."""
        return self._thread.backend.exists

    @property
    def keeps_outputs(self) -> bool:
        """Whether whole outputs of tools are in the database, and not beside it."""
        return self._thread.backend.keeps_outputs

    @property
    def warnings(self) -> list[str]:
        """What a person should know of how the database was opened. Grows only while opening it."""
        return self._thread.backend.warnings

    def open_in_background(self) -> None:
        """A failure shows at the first job."""
        self._thread.open_soon()

    def allow_unfinished(self) -> None:
        """Before anything else: this store may continue a copy that was interrupted here."""
        self._thread.backend.may_be_unfinished = True

    def leave_damaged_file(self) -> None:
        """Before anything else: a file that cannot be read is an error, and stays what and where it is."""
        self._thread.backend.sets_aside = False

    def listen(self, hear: Callable[[str], None]) -> None:
        """From now on `hear` is called, in this loop, with what a person should know while a job waits."""
        self._thread.listen(hear)

    async def run_maintenance(self) -> bool:
        """A few milliseconds of it: the index grows, deleted rows leave the file. False: all is done."""
        return await self._thread.do(lambda database: database.tidy())

    async def check(self) -> list[str]:
        """Reads the whole database; its problems, one line each. Empty if it is sound."""
        return await self._thread.do(lambda database: database.connection.check())

    async def close(self) -> None:
        """Finishes what is queued and closes the database. The store cannot be used afterwards."""
        await self._thread.close()
