"""What every reader gives: sessions of another agent as pieces of messages and compactions, with counts.

A reader maps what it understands and counts the rest by kind; it makes nothing up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Part, Role, Usage

DAMAGED = "damaged"
"""What could not be read at all: cut lines, broken JSON, unreadable rows."""


class UnreadableSource(CrushpyError):
    """A file or database that cannot be read as what it was taken for."""


class Piece(Data, frozen=True):
    """A part of a message, as small as the other agent stores it."""

    id: str
    """Its own name, the same whenever the session is read."""
    role: Role
    parts: tuple[Part, ...]
    created_at: float = 0.0
    """0 where nothing is said about it."""
    group: str = ""
    """Neighbouring pieces of one role and one group are one message; empty: alone."""
    model: str = ""
    usage: Usage | None = None


class ForeignCompaction(Data, frozen=True):
    """Where the other agent's context was replaced by a summary."""

    id: str
    summary: str
    created_at: float = 0.0
    keep_from: str = ""
    """The piece or group with which the part begins that stayed as it was; empty: nothing did."""
    tokens_before: int = 0


class Heading(Data, frozen=True):
    """What the session is called there; the last one holds."""

    title: str


Item = Piece | ForeignCompaction | Heading
Unmapped = Counter[str]


class ForeignSession(Data, frozen=True):
    """One session of another agent. `read` goes through it from its beginning, each time it is called, and
    adds to the counts it is given what it could not map."""

    id: str
    file: Path
    cwd: str
    read: Callable[[Unmapped], Iterator[Item]]
    created_at: float = 0.0
    note: str = ""
    """What a person should know: a newer version wrote it."""


SUB_AGENT = "sub-agent's session"


class NoSession(Data, frozen=True):
    """Something that is no session to import: a sub-agent's, unless it says otherwise."""

    file: Path
    problem: str = SUB_AGENT


def looked_at(file: Path, look: Callable[[Path], ForeignSession | NoSession]) -> ForeignSession | NoSession:
    """What `look` makes of a file; a file that cannot be read does not keep the others away."""
    try:
        return look(file)
    except UnreadableSource as error:
        return NoSession(file, error.message)


class Source(Protocol):
    """One agent whose sessions can be read."""

    name: str
    """As it is named on the command line."""
    title: str
    """As people call it."""

    def places(self, cwd: Path) -> Sequence[Path]:
        """Where its sessions live on this machine, whether or not there are any."""
        ...

    def sessions(self, path: Path) -> Iterable[ForeignSession | NoSession]:
        """Those in a file or folder, the same order every time. Raises nothing: what cannot be read at all
        is a finding."""
        ...
