"""Finding messages by what they say."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from crushpy.storage.door.storage_thread import StorageThread
from crushpy.storage.records import CannotWriteNow, SearchHit

if TYPE_CHECKING:
    from crushpy.storage.database import Database

_A_MOMENT = 0.3
"""Seconds that a search gives to the index."""


class StoredWords(StorageThread):
    """The search, and how far its index is."""

    async def search(
        self, query: str, *, within: str | None = None, cwd: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        """Messages that hold the words of `query`, best first; `within` one session's lineage and tasks."""
        with suppress(CannotWriteNow):  # what is there is found
            await self._catch_up(within)
        return await self._do(lambda database: database.search.find(query, within, cwd, limit))

    async def _catch_up(self, within: str | None) -> None:
        """Indexes what a search is about, in pieces: what a running turn has to store need not wait."""
        led: list[str] = []
        deadline = time.monotonic() + _A_MOMENT
        if within is not None:
            led = await self._do(lambda database: list(database.search.reach(within)))
            deadline = math.inf
        while await self._do(lambda database: _add_some(database, led)):
            if time.monotonic() > deadline:
                break

    async def index_more(self) -> int:
        """Gives the index a moment; how many messages a search cannot find after it. `CannotWriteNow` where
        others write."""
        await self._catch_up(None)
        return await self.unindexed()

    async def unindexed(self) -> int:
        """How many messages a search cannot find yet."""
        return await self._do(lambda database: database.index.left())


def _add_some(database: "Database", sessions: Sequence[str]) -> bool:
    with database.connection.briefly():
        return database.index.add_some(sessions)
