"""What is noted on disk in case crushpy is killed: restorations, so that they can be finished, and running
commands, so that their changes are found.

Beside the note of a command is the index of the workspace before it. The note's modification time says when
crushpy was last alive: later changes were made by others.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import read_stored, write_private
from crushpy.undo.restoration import Step
from crushpy.undo.states import MISSING, RecordedChange, path_from_stored, stored_path
from crushpy.util.processes import started_at, still_runs

T = TypeVar("T")


class JournalFork(Data, frozen=True):
    """The fork in which the conversation continues afterwards."""

    session_id: str
    """The session that is left."""
    message_id: str
    fork_id: str


class JournalEntry(Data, frozen=True):
    id: str
    root_id: str
    session_id: str
    source: str
    """undo, redo or rewind."""
    steps: tuple[Step, ...] = ()
    reverses: str = ""
    fork: JournalFork | None = None
    cwd: str = ""


class Journal:
    """The restorations that were started and not finished."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, entry: JournalEntry) -> None:
        """Raises OSError; nothing was started then."""
        data = msgspec.json.encode(_with_paths(entry, stored_path))
        write_private(_own_note(self._folder, entry.id), data)

    def remove(self, entry_id: str) -> None:
        for note in self._folder.glob(f"*-{entry_id}.json"):
            note.unlink(missing_ok=True)

    def unfinished(self, root_id: str, workspace: str) -> list[JournalEntry]:
        """Those of a conversation or a workspace whose process is gone, oldest first."""
        left = (_with_paths(entry, path_from_stored) for _, entry in _left_notes(self._folder, JournalEntry))
        return [entry for entry in left if entry.root_id == root_id or entry.cwd == workspace]


def _with_paths(entry: JournalEntry, convert: Callable[[str], str]) -> JournalEntry:
    """The entry with each of its paths converted: JSON cannot hold names that are not Unicode."""
    steps = (Step(convert(step.path), step.now, step.target, convert(step.staging)) for step in entry.steps)
    return msgspec.structs.replace(entry, steps=tuple(steps), cwd=convert(entry.cwd))


HEARTBEAT_S = 1.0


class RunningCommand(Data, frozen=True):
    """A command that may change files, and the call it belongs to."""

    root_id: str
    session_id: str
    message_id: str
    call_id: str
    source: str
    workspace: str
    """As `stored_path` writes it."""
    since: int
    """The number of the last recorded change when it began."""
    begun_at: float


class InterruptedCommand(Data, frozen=True):
    """A command whose crushpy process is gone."""

    command: RunningCommand
    last_seen: float
    note: Path
    index: Path

    def remove(self) -> None:
        for file in (self.note, self.index):
            with suppress(OSError):
                file.unlink()


class RunningCommands:
    """The note of one process in one workspace."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name` identifies the workspace."""
        self._folder = folder
        self._note = _own_note(folder, name)
        self.index = self._note.with_suffix(".index")
        """The file for the index of the workspace while a command runs."""

    def write(self, command: RunningCommand) -> None:
        write_private(self._note, msgspec.json.encode(command), sync=False)

    def beat(self) -> None:
        with suppress(OSError):
            os.utime(self._note)

    def clear(self) -> None:
        with suppress(OSError):
            self._note.unlink()

    def sweep(self) -> None:
        """Removes the files of processes that were killed while no command ran."""
        for file in self._folder.glob("*.index"):
            if not _owner_runs(file) and not file.with_suffix(".json").exists():
                with suppress(OSError):
                    file.unlink()


def find_interrupted(folder: Path, root_id: str, workspace: str) -> list[InterruptedCommand]:
    """The commands of a conversation, or in a workspace, whose crushpy process is gone; oldest first."""
    return [
        InterruptedCommand(command, _file_time(str(file), "st_mtime"), file, file.with_suffix(".index"))
        for file, command in _left_notes(folder, RunningCommand)
        if command.root_id == root_id or command.workspace == stored_path(workspace)
    ]


# --- files whose names tell which process wrote them


def _own_note(folder: Path, name: str) -> Path:
    me = os.getpid()
    return folder / f"{me}-{started_at(me)}-{name}.json"


def _left_notes(folder: Path, kind: type[T]) -> list[tuple[Path, T]]:
    """The notes of processes that are gone, oldest first."""
    files = sorted(folder.glob("*.json"), key=lambda file: _file_time(str(file), "st_mtime"))
    left = [(file, read_stored(file, kind)) for file in files if not _owner_runs(file)]
    return [(file, note) for file, note in left if note is not None]


def _owner_runs(file: Path) -> bool:
    process, _, rest = file.name.partition("-")
    return process.isdigit() and still_runs(int(process), rest.partition("-")[0])


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
    path = change.path
    if change.after == MISSING:
        parent = os.path.dirname(path)  # noqa: PTH120
        while parent != "/" and not os.path.isdir(parent):  # noqa: PTH112
            parent = os.path.dirname(parent)  # noqa: PTH120
        return _file_time(parent, "st_mtime")
    changed_at = _file_time(path, "st_ctime")
    while path in new:  # the contents of a moved folder keep their times
        changed_at = max(changed_at, _file_time(path, "st_ctime"))
        path = os.path.dirname(path)  # noqa: PTH120
    return changed_at


def _file_time(path: str, name: str) -> float:
    try:
        return getattr(os.lstat(path), name)
    except OSError:
        return 0.0
