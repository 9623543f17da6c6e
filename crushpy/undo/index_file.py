"""The index of a workspace on disk: written whole once, then what changed is added at its end."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.core.paths import private_dir
from crushpy.undo.states import FileState

Signature = tuple[int, int, int, int]
"""Time of content and of status, size, inode."""
IndexRow = tuple[bytes, Signature | None, FileState | None]
"""A path and what it held; None: nothing any more."""
_VERSION = 2
_LENGTH = 8


class _Rows(Data, frozen=True):
    version: int
    root: bytes
    rows: Sequence[IndexRow]


class IndexFile:
    """For one workspace. Not synced: it is to outlive this process, not the machine."""

    def __init__(self, file: Path, root: str) -> None:
        """`root` is the workspace; empty: whichever it is of."""
        self.file = file
        self._root = os.fsencode(root)

    def read(self) -> dict[bytes, IndexRow]:
        """The last word on each path. Whatever is wrong with the file, there is nothing from there on."""
        found: dict[bytes, IndexRow] = {}
        with suppress(OSError, msgspec.MsgspecError):
            data = self.file.read_bytes()
            at = 0
            while at < len(data):
                size = int.from_bytes(data[at : at + _LENGTH], "big")
                at += _LENGTH + size
                if at > len(data):
                    break
                piece = msgspec.msgpack.decode(data[at - size : at], type=_Rows)
                if piece.version != _VERSION or piece.root != (self._root or piece.root):
                    break
                for row in piece.rows:
                    found[row[0]] = row
        return found

    def write(self, rows: Sequence[IndexRow]) -> None:
        """Instead of what was there. Raises OSError."""
        private_dir(self.file.parent)
        temporary = self.file.with_name(f"{self.file.name}.{os.getpid()}.tmp")
        try:
            self._put(temporary, os.O_TRUNC, rows)
            temporary.replace(self.file)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def add(self, rows: Sequence[IndexRow]) -> None:
        """Raises OSError."""
        self._put(self.file, os.O_APPEND, rows)

    def remove(self) -> None:
        with suppress(OSError):
            self.file.unlink()

    def _put(self, file: Path, how: int, rows: Sequence[IndexRow]) -> None:
        data = msgspec.msgpack.encode(_Rows(_VERSION, self._root, rows))
        left = memoryview(len(data).to_bytes(_LENGTH, "big") + data)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how, 0o600)
        try:
            while left:
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)
