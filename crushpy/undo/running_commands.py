"""Which command runs now, written down: what it changed is found even where crushpy is killed meanwhile.

Beside the note stands the index of the workspace as it was before the command. The note's own time says when
crushpy was last alive: what changed later was somebody else.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.core.paths import private_dir
from crushpy.undo.states import stored_path
from crushpy.util.processes import started_at, still_runs

BEAT = 1.0
"""Seconds between two signs of life."""


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
    """The last change there was when it began."""
    begun_at: float


class LeftBehind(Data, frozen=True):
    """A command whose crushpy is gone."""

    command: RunningCommand
    last_seen: float
    note: Path
    index: Path

    def remove(self) -> None:
        for file in (self.note, self.index):
            with suppress(OSError):
                file.unlink()


class RunningCommands:
    """Of one process in one workspace."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name` stands for the workspace."""
        self._folder = folder
        me = os.getpid()
        self._note = folder / f"{me}-{started_at(me)}-{name}.json"
        self.index = self._note.with_suffix(".index")
        """Where the index of the workspace is kept meanwhile."""

    def write(self, command: RunningCommand) -> None:
        """Raises OSError."""
        private_dir(self._folder)
        temporary = self._note.with_suffix(".tmp")
        temporary.touch(0o600)
        temporary.write_bytes(msgspec.json.encode(command))
        temporary.replace(self._note)

    def beat(self) -> None:
        with suppress(OSError):
            os.utime(self._note)

    def clear(self) -> None:
        with suppress(OSError):
            self._note.unlink()

    def sweep(self) -> None:
        """Takes away what processes left that were killed while no command ran."""
        for file in _files(self._folder, ".index"):
            if not _owner_lives(file) and not file.with_suffix(".json").exists():
                with suppress(OSError):
                    file.unlink()


def left_behind(folder: Path, root_id: str, workspace: str) -> list[LeftBehind]:
    """The commands of a conversation, or in a workspace, whose crushpy is gone; oldest first."""
    found: list[LeftBehind] = []
    for file in _files(folder, ".json"):
        if _owner_lives(file):
            continue
        try:
            command = msgspec.json.decode(file.read_bytes(), type=RunningCommand)
            seen = file.stat().st_mtime
        except (OSError, msgspec.MsgspecError):
            continue
        if command.root_id == root_id or command.workspace == stored_path(workspace):
            found.append(LeftBehind(command, seen, file, file.with_suffix(".index")))
    return sorted(found, key=lambda one: one.command.begun_at)


def _files(folder: Path, suffix: str) -> Iterator[Path]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    yield from (folder / name for name in names if name.endswith(suffix))


def _owner_lives(file: Path) -> bool:
    process, _, rest = file.name.partition("-")
    return process.isdigit() and still_runs(int(process), rest.partition("-")[0])
