"""A file of SQLite, seen from the storage thread."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from crushpy.storage.backend import Backend

if TYPE_CHECKING:
    from crushpy.storage.database import Database

T = TypeVar("T")


class SqliteBackend(Backend):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    @property
    def place(self) -> str:
        return str(self._file)

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def open(self) -> "Database":
        if self.database is None:
            from crushpy.storage.sqlite.open_database import open_database

            database = open_database(self._file, self.warnings, self._told_later, sets_aside=self.sets_aside)
            try:
                self.refuse_unfinished(database.copy_state.unfinished())
            except BaseException:
                database.connection.close()
                raise
            self.database = database
        return self.database

    def _told_later(self, words: str) -> None:
        self.say(words)  # whoever listens by then

    def work(self, job: "Callable[[Database], T]", asked: float | None = None) -> T:
        """Others that write are waited for by the transactions themselves."""
        from crushpy.storage.sqlite.faults import explained

        with explained(self._file):
            return job(self.open())
