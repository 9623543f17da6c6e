"""Remembers which files the model has read, and their content at that time, so that no edit is blind."""

from pathlib import Path
from typing import Literal

DIGEST_SIZE = 16
"""Bytes of the blake2b digest that identifies a content."""
State = Literal["unread", "unchanged", "changed"]


class FileMemory:
    """The content the model last saw of each file, by its resolved path."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def remember(self, path: Path, content: bytes) -> None:
        """Records that the model knows the content of `path`."""
        self.remember_digest(path, _hash(content))

    def remember_digest(self, path: Path, digest: str) -> None:
        """The same for a content that was never in memory as a whole."""
        self._seen[str(path)] = digest

    def state(self, path: Path, content: bytes) -> State:
        """Whether `content`, the current content of `path`, is what the model saw."""
        seen = self._seen.get(str(path))
        if seen is None:
            return "unread"
        return "unchanged" if seen == _hash(content) else "changed"


def _hash(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=DIGEST_SIZE).hexdigest()
