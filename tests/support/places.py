"""Where a test stores: a file, or a database on a server."""

from pathlib import Path

from crushpy.storage.store import Store


class Place:
    def __init__(self, file: Path, url: str = "") -> None:
        self.file = file
        self.url = url

    @property
    def arguments(self) -> tuple[str, str]:
        """For a process of its own: the file, and the address."""
        return str(self.file), self.url

    def store(self) -> Store:
        return Store(self.file, self.url)
