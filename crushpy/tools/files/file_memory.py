"""Remembers which files the model has read, and their content at that time, so that no edit is blind."""

from pathlib import Path
from typing import Literal

State = Literal["unread", "unchanged", "changed"]


class FileMemory:
    """The content the model last saw of each file, by its resolved path."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def remember(self, path: Path, content: bytes) -> None:
        """Records that the model knows the content of `path`."""
        self._seen[str(path)] = _hash(content)

    def state(self, path: Path, content: bytes) -> State:
        """Whether `content`, the current content of `path`, is what the model saw."""
        seen = self._seen.get(str(path))
        if seen is None:
            return "unread"
        return "unchanged" if seen == _hash(content) else "changed"


def _hash(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=16).hexdigest()
