"""The state of a path at one moment, and recorded changes of it."""

import os
from typing import Literal

from crushpy.core.messages import Data

Kind = Literal["missing", "file", "link", "folder", "special"]


class FileState(Data, frozen=True):
    """The state of a path: missing, a file, a link, a folder, or something that cannot be restored."""

    kind: Kind = "missing"
    hash: str = ""
    """Of a file: SHA-256 of its content; of an unread file, a mark made of its size and time."""
    size: int = 0
    mode: int = 0
    target: str = ""
    """Of a link: its target, as `stored_path` writes it."""
    kept: str = ""
    """Where the content of a file is stored: `store`, `git:ID`, or empty."""
    why: str = ""
    """Why the content was not stored."""

    def same(self, other: "FileState") -> bool:
        """Whether both states are equal, wherever the content is stored."""
        if self.kind != other.kind:
            return False
        if self.kind == "file":
            return self.hash == other.hash and self.mode == other.mode
        return self.target == other.target


MISSING = FileState()


class RecordedChange(Data, frozen=True):
    """What one call, or one restoration, did to one path."""

    path: str
    """Absolute, with links resolved."""
    before: FileState
    after: FileState | None = None
    """None while it is being made, and if crushpy ended meanwhile."""
    number: int = 0
    """Increases with time; 0 if it is not stored yet."""
    root_id: str = ""
    session_id: str = ""
    message_number: int = 0
    """The number of its message, over all conversations."""
    call_id: str = ""
    source: str = ""
    """The tool that made it; `undo`, `redo` or `rewind` for a restoration."""
    batch: str = ""
    """The same for all changes of one call or restoration."""
    reverses: str = ""
    """Of a redo: the batch it reverses."""
    machine: str = ""
    host: str = ""
    """The machine's name for display."""
    created_at: float = 0.0


RESTORATIONS = ("undo", "redo", "rewind")


def stored_path(path: str) -> str:
    """A path as text for any database: a name that is not Unicode is written as hexadecimal bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "hex:" + os.fsencode(path).hex()
    return f"hex:{path.encode().hex()}" if path.startswith("hex:") else path


def path_from_stored(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[4:])) if text.startswith("hex:") else text
