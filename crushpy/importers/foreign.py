"""What every reader returns: sessions of another agent as pieces of messages and compactions.

A reader maps what it understands and counts everything else by kind; it never invents content.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Part, Role, Usage

DAMAGED = "damaged"
"""The count of truncated lines, invalid JSON and unreadable rows."""
SUB_AGENT = "sub-agent's session"


class UnreadableSource(CrushpyError):
    """A file or database that is not in the expected format."""


class Piece(Data, frozen=True):
    """A part of a message, at the granularity of the other agent's storage."""

    id: str
    """Stable: the same each time the session is read."""
    role: Role
    parts: tuple[Part, ...]
    created_at: float = 0.0
    """0 if unknown."""
    group: str = ""
    """Adjacent pieces of one role and one group form one message; a piece without a group stands alone."""
    model: str = ""
    usage: Usage | None = None


class ForeignCompaction(Data, frozen=True):
    """The point at which the other agent replaced its context by a summary."""

    id: str
    summary: str
    created_at: float = 0.0
    keep_from: str = ""
    """The piece or group at which the kept messages begin; empty if none were kept."""
    tokens_before: int = 0
    tail: tuple[str, ...] = ()
    """Our own ids of the kept messages, filled in by `normalised`."""


class Heading(Data, frozen=True):
    """The session's title; the last one wins."""

    title: str


Item = Piece | ForeignCompaction | Heading
Unmapped = Counter[str]


class ForeignSession(Data, frozen=True):
    """One session of another agent. Each call of `read` starts from the beginning and adds what it could not
    map to the counter."""

    id: str
    file: Path
    cwd: str
    read: Callable[[Unmapped], Iterator[Item]]
    created_at: float = 0.0
    note: str = ""
    """A remark for the user, for example that a newer version wrote the file."""


class SkippedSession(Data, frozen=True):
    """A session that is not imported: a sub-agent's, unless `reason` says otherwise."""

    file: Path
    reason: str = SUB_AGENT


Found = ForeignSession | SkippedSession


class Source(Protocol):
    """One agent whose sessions can be read."""

    name: str
    """The name on the command line."""
    title: str
    """The product's name."""

    def places(self, cwd: Path) -> Sequence[Path]:
        """Where its sessions are stored on this machine, existing or not."""
        ...

    def sessions(self, path: Path) -> Iterable[Found]:
        """The sessions in a file or folder, in a stable order. Must not raise: what cannot be read becomes a
        `SkippedSession`."""
        ...
