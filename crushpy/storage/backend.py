"""A kind of database, seen from the storage thread: opens it when the first job comes, does jobs, closes it.

Light: does not know a database's own library.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from crushpy.storage.records import StorageError

if TYPE_CHECKING:
    from crushpy.storage.database import Database

T = TypeVar("T")
LONG_AGO = float("-inf")
"""Asked for then, a job waits for nobody: it may as well be done later."""
JUST_NOW = 10.0
"""Seconds after waiting in vain in which nobody waits again: a turn that ends has more to store."""


class Backend(ABC):
    """Every method raises `StorageError` where the database cannot be used."""

    one_writer: ClassVar[bool] = True
    """Whoever writes keeps all others from writing."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        """What a person should know of how the database was opened. Grows only while opening it."""
        self.database: Database | None = None
        """None until it was opened."""
        self.may_be_unfinished = False
        """Whether a copy that was interrupted may be opened: only by whoever goes on with it."""
        self.sets_aside = True
        """Whether a file that cannot be read is kept under another name, and a new one begun."""
        self.say: Callable[[str], None] = _nobody_listens
        """Called on the storage thread with what a person should know while a job waits."""

    @property
    @abstractmethod
    def place(self) -> str:
        """How errors and people name the database; without passwords."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """False where the first write would make it."""

    @property
    def keeps_outputs(self) -> bool:
        """Whether whole outputs of tools are kept in it, and not beside it."""
        return False

    @abstractmethod
    def open(self) -> "Database":
        """The open database."""

    @abstractmethod
    def work(self, job: "Callable[[Database], T]", asked: float | None = None) -> T:
        """What `job` gives. It is done again where the connection was lost.

        It waits a minute at most, from the moment on at which it was `asked` for (of the monotonic clock).
        """

    def refuse_unfinished(self, source: str | None) -> None:
        """An error where `storage copy` was interrupted; `source` is what it copied."""
        if source is not None and not self.may_be_unfinished:
            raise StorageError(
                f"{self.place} is an unfinished copy of {source}: conversations may be missing in it",
                f"Finish it: crushpy storage copy {source} {self.place}",
            )

    def close(self) -> None:
        if self.database is not None:
            self.database.connection.close()
            self.database = None


def _nobody_listens(_: str) -> None:
    pass
