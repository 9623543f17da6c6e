"""Remembers which files the model has seen, and their content at that moment, so that no edit is blind."""

from pathlib import Path
from typing import Literal

DIGEST_SIZE = 16
"""Bytes of the blake2b by which a content is known again."""
State = Literal["unread", "unchanged", "changed"]


class FileMemory:
    """What the model last saw of each file: one entry for each, by its path behind all links."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def remember(self, path: Path, content: bytes) -> None:
        """The model knows that `path` holds `content` now."""
        self.remember_digest(path, _hash(content))

    def remember_digest(self, path: Path, digest: str) -> None:
        """The same for a content that was never held as a whole."""
        self._seen[str(path)] = digest

    def state(self, path: Path, content: bytes) -> State:
        """Whether `content`, which `path` holds now, is what the model saw."""
        seen = self._seen.get(str(path))
        if seen is None:
            return "unread"
        return "unchanged" if seen == _hash(content) else "changed"


def _hash(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=DIGEST_SIZE).hexdigest()
