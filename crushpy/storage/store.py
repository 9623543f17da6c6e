"""The door of storage: every read and write, in order, on one thread of its own."""

from crushpy.storage.door.finding import StoredWords
from crushpy.storage.door.keeping import StoredRecords
from crushpy.storage.door.lineages import StoredLineages
from crushpy.storage.door.sessions import StoredSessions
from crushpy.storage.door.transfer import StoredRows


class Store(StoredSessions, StoredWords, StoredLineages, StoredRecords, StoredRows):
    """All conversations of one database.

    What is awaited is committed when the call returns. A write goes through even where the task that
    awaits it is cancelled, and even where the process ends before `close`. Every method raises
    `StorageError` where the database cannot be used, and may be called again once that is mended.
    """

    async def check(self) -> list[str]:
        """Reads the whole database; what is wrong with it, one line each. Empty where it is sound."""
        return await self._do(lambda database: database.connection.check())
