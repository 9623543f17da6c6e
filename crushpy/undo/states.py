"""What a path held at one moment, and how that changed: the words in which changes are recorded."""

import os
from typing import Literal

from crushpy.core.messages import Data

Kind = Literal["missing", "file", "link", "folder", "special"]


class FileState(Data, frozen=True):
    """What a path held: nothing, a file, a link, a folder, or something that cannot be put back."""

    kind: Kind = "missing"
    hash: str = ""
    """Of a file: SHA-256 of its bytes; of one that was not read, a mark made of its size and time."""
    size: int = 0
    mode: int = 0
    target: str = ""
    """Of a link: where it points, as `stored_path` writes it."""
    kept: str = ""
    """Where the bytes of a file are: `store`, `git:ID`, or nothing."""
    why: str = ""
    """Why the bytes were not kept."""

    def same(self, other: "FileState") -> bool:
        """Whether both are the same to whoever looks at the path."""
        if self.kind != other.kind:
            return False
        if self.kind == "file":
            return self.hash == other.hash and self.mode == other.mode
        return self.target == other.target


MISSING = FileState()


class RecordedChange(Data, frozen=True):
    """What one call, or one restoration, did to one path."""

    path: str
    """Absolute, behind all links."""
    before: FileState
    after: FileState | None = None
    """None while it is being made, and where crushpy was ended meanwhile."""
    number: int = 0
    """Grows with time; 0 where it is not stored yet."""
    root_id: str = ""
    session_id: str = ""
    message_number: int = 0
    """The message it belongs to, as storage counts them over all conversations."""
    call_id: str = ""
    source: str = ""
    """The tool that made it; `undo`, `redo` or `rewind` where it put something back."""
    batch: str = ""
    """The same for all changes of one call or restoration."""
    reverses: str = ""
    """Of a redo: the batch it takes back."""
    machine: str = ""
    host: str = ""
    """The machine's name, for people."""
    created_at: float = 0.0

    @property
    def restores(self) -> bool:
        return self.source in RESTORATIONS


RESTORATIONS = ("undo", "redo", "rewind")


def stored_path(path: str) -> str:
    """A path as text that any database takes: a name that is no Unicode is written as hexadecimal bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "hex:" + os.fsencode(path).hex()
    return f"hex:{path.encode().hex()}" if path.startswith("hex:") else path


def path_from_stored(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[4:])) if text.startswith("hex:") else text
