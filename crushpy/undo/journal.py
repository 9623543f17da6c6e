"""What is noted on disk in case crushpy is killed: restorations, so that they can be finished, and running
commands, so that their changes are found.

Beside the note of a command is the index of the workspace before it. The note's modification time says when
crushpy was last alive: later changes were made by others.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import write_private
from crushpy.undo.restoration import Step
from crushpy.undo.states import MISSING, RecordedChange
from crushpy.util.processes import started_at, still_runs


class ProcessNote(Data, frozen=True, kw_only=True):
    """What one process is doing to files, for a conversation in a workspace."""

    root_id: str
    session_id: str
    source: str
    """The tool; undo, redo or rewind."""
    workspace: str


N = TypeVar("N", bound=ProcessNote)


class JournalFork(Data, frozen=True):
    """The fork in which the conversation continues afterwards."""

    session_id: str
    """The session that is left."""
    message_id: str
    fork_id: str


class JournalEntry(ProcessNote, frozen=True, kw_only=True):
    """A restoration that was started."""

    id: str
    steps: tuple[Step, ...]
    reverses: str = ""
    fork: JournalFork | None = None


class RunningCommand(ProcessNote, frozen=True, kw_only=True):
    """A command that may change files, and the call it belongs to."""

    message_id: str
    call_id: str
    since: int
    """The number of the last recorded change when it began."""
    begun_at: float


class Notes(Generic[N]):
    """A folder with notes of one kind. The name of each tells which process wrote it."""

    def __init__(self, folder: Path, kind: type[N]) -> None:
        self.folder = folder
        self._kind = kind

    def own_file(self, name: str) -> Path:
        """The file of this process for a note with that name."""
        me = os.getpid()
        return self.folder / f"{me}-{started_at(me)}-{name}.json"

    def write(self, name: str, note: N, *, sync: bool = True) -> None:
        """Raises OSError."""
        # Unlike msgspec, Python's JSON can hold the names of files that are not Unicode.
        write_private(self.own_file(name), json.dumps(msgspec.to_builtins(note)).encode(), sync=sync)

    def remove(self, name: str) -> None:
        """Removes a note, whichever process wrote it."""
        for file in self.folder.glob(f"*-{name}.json"):
            file.unlink(missing_ok=True)

    def find_left(self, root_id: str, workspace: str) -> list[tuple[Path, N]]:
        """Those of a conversation or a workspace whose process is gone, oldest first."""
        found: list[tuple[Path, N]] = []
        for file in sorted(self.folder.glob("*.json"), key=lambda file: file_time(file, "st_mtime")):
            with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
                note = msgspec.convert(json.loads(file.read_bytes()), self._kind)
                if not owner_runs(file) and (note.root_id == root_id or note.workspace == workspace):
                    found.append((file, note))
        return found


def owner_runs(file: Path) -> bool:
    process, _, rest = file.name.partition("-")
    return process.isdigit() and still_runs(int(process), rest.partition("-")[0])


HEARTBEAT_S = 1.0
CLOCK_TOLERANCE_S = 0.1
"""File systems record times in steps, and by another clock."""


def changes_between(
    changes: Sequence[RecordedChange], begun: float, last_seen: float
) -> list[RecordedChange]:
    """The changes from `begun` on; the state after it is None if the path was changed again later.

    Changes older than the command are skipped: they were made before it, and not noticed.
    """
    new = {change.path for change in changes if change.before.kind == "missing"}
    timed = [(change, _changed_at(change, new)) for change in changes]
    end = last_seen + HEARTBEAT_S + CLOCK_TOLERANCE_S
    return [
        change if changed_at <= end else msgspec.structs.replace(change, after=None)
        for change, changed_at in timed
        if changed_at >= begun - CLOCK_TOLERANCE_S
    ]


def _changed_at(change: RecordedChange, new: set[str]) -> float:
    """When a path last changed, according to the file system."""
    path = Path(change.path)
    if change.after == MISSING:
        parent = next(above for above in path.parents if os.path.isdir(above))  # noqa: PTH112
        return file_time(parent, "st_mtime")
    # The contents of a moved folder keep their times.
    new_above = takewhile(lambda above: str(above) in new, path.parents)
    return max(file_time(place, "st_ctime") for place in (path, *new_above))


def file_time(path: Path, name: str) -> float:
    try:
        return getattr(path.lstat(), name)
    except OSError:
        return 0.0
