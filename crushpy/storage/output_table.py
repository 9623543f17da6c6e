"""Whole outputs of tools, on a server: so that the path which was printed can be viewed on every machine.

Beside a file of SQLite they stay files. Lives on the storage thread.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator


class OutputTable(ABC):
    @abstractmethod
    def keep(self, root_id: str, name: str, data: bytes) -> None:
        """Stores one, in place of what was kept under that name."""

    @abstractmethod
    def find(self, root_id: str, name: str) -> bytes | None: ...

    @abstractmethod
    def names(self) -> Iterator[tuple[str, str]]:
        """All there are: conversation and name."""


class NoOutputs(OutputTable):
    """Outputs are files beside the database."""

    def keep(self, root_id: str, name: str, data: bytes) -> None:
        pass

    def find(self, root_id: str, name: str) -> bytes | None:
        return None

    def names(self) -> Iterator[tuple[str, str]]:
        return iter(())
