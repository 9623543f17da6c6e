"""Remembers which files the model has seen, and their content at that moment, so that no edit is blind."""

import os
from pathlib import Path
from typing import Literal

State = Literal["unread", "unchanged", "changed"]


class FileMemory:
    """What the model last saw of each file. A file has one entry, by whichever path it was reached."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def remember(self, path: Path, content: bytes) -> None:
        """The model knows that `path` holds `content` now."""
        self._seen[_key(path)] = _hash(content)

    def state(self, path: Path, content: bytes) -> State:
        """Whether `content`, which `path` holds now, is what the model saw."""
        seen = self._seen.get(_key(path))
        if seen is None:
            return "unread"
        return "unchanged" if seen == _hash(content) else "changed"

    def to_dict(self) -> dict[str, str]:
        """Everything remembered, as plain JSON data."""
        return dict(self._seen)

    @classmethod
    def from_dict(cls, data: dict[str, str]) -> "FileMemory":
        memory = cls()
        memory._seen = dict(data)
        return memory


def _key(path: Path) -> str:
    # A name that is not valid UTF-8 would not survive JSON as it is.
    return os.path.realpath(path).encode("utf-8", "backslashreplace").decode()


def _hash(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=16).hexdigest()
