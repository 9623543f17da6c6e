"""The API of storage: every read and write, in order, on one thread of its own."""

from pathlib import Path

from crushpy.storage import record_store
from crushpy.storage.audit_store import AuditStore
from crushpy.storage.boundary_store import BoundaryStore
from crushpy.storage.file_changes import FileChangeStore
from crushpy.storage.fleet_store import FleetStore
from crushpy.storage.location import Location
from crushpy.storage.message_store import CallStore, MessageStore
from crushpy.storage.search_store import SearchStore, index_some
from crushpy.storage.session_store import ImportStore, SessionStore, delete_rows, merge_index
from crushpy.storage.storage_thread import StorageThread


class Store:
    """All conversations of one database.

    When a call returns, its write is committed. A write completes even if the task that awaits it is
    cancelled, and even if the process ends before `close`. Every method raises `StorageError` if the
    database cannot be used, and may be called again once that is fixed.
    """

    def __init__(self, database: Path, url: str = "", outputs: Path | None = None) -> None:
        """`url` is the setting `database_url`; if it is empty the database is the file `database`. `outputs`:
        the folder with the outputs of tools."""
        self.location = Location(database, url)
        thread = self.thread = StorageThread(self.location, self._maintain)
        self.place = self.location.place
        """How people name the database: a file, or an address without its password."""
        self.warnings = self.location.warnings
        """Problems met while opening the database, for the user."""
        self.open_in_background = thread.open_in_background
        self.listen = thread.listen
        self.close = thread.close
        self.outputs = record_store.OutputStore(thread, outputs)
        self.sessions = SessionStore(thread)
        self.messages = MessageStore(thread)
        self.calls = CallStore(thread, self.outputs)
        self.boundaries = BoundaryStore(thread)
        self.pins = record_store.PinStore(thread)
        self.statuses = record_store.StatusStore(thread)
        self.notes = record_store.NoteStore(thread)
        self.leases = record_store.LeaseStore(thread)
        self.tasks = record_store.TaskStore(thread)
        self.fleet = FleetStore(thread)
        self.usage = record_store.UsageStore(thread)
        self.audit = AuditStore(thread)
        self.file_changes = FileChangeStore(thread)
        self.search = SearchStore(thread)
        self.imports = ImportStore(thread)

    async def run_maintenance(self) -> bool:
        """A few milliseconds of it: the index grows, deleted rows leave the file. False if all is done."""
        return await self.thread.run(self._maintain)

    def _maintain(self) -> bool:
        db = self.thread.database
        return index_some(db) or delete_rows(db) or merge_index(db)

    async def check(self) -> list[str]:
        """Reads the whole database; its problems, one line each. Empty if it is sound."""
        return await self.thread.run(lambda: self.thread.database.check())  # noqa: PLW0108  # opened there

    async def verify(self) -> None:
        """Raises `DatabaseLost` if the file was deleted, replaced or overwritten since it was opened."""
        if not self.location.is_unchanged():
            await self.thread.run(lambda: self.thread.database.verify())  # noqa: PLW0108  # opened there
