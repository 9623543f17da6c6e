"""A journal of restorations: written before they start, so that an interrupted one can be finished."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import read_stored, write_private
from crushpy.undo.restoration import Step
from crushpy.undo.states import path_from_stored, stored_path
from crushpy.util.processes import started_at, still_runs


class JournalFork(Data, frozen=True):
    """The branch in which the conversation continues afterwards."""

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
    started_at: float = 0.0
    process: int = 0
    process_start: str = ""


class Journal:
    """The restorations that were started and not finished."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, entry: JournalEntry) -> None:
        """Raises OSError; nothing was started then."""
        me = os.getpid()
        entry = msgspec.structs.replace(
            entry, started_at=time.time(), process=me, process_start=started_at(me)
        )
        data = msgspec.json.encode(_with_paths(entry, stored_path))
        write_private(self._folder / f"{entry.id}.json", data)

    def remove(self, entry_id: str) -> None:
        (self._folder / f"{entry_id}.json").unlink(missing_ok=True)

    def unfinished(self, root_id: str, workspace: str) -> list[JournalEntry]:
        """Those of a conversation or a workspace whose process is gone, oldest first."""
        found: list[JournalEntry] = []
        for file in self._folder.glob("*.json"):
            if (stored := read_stored(file, JournalEntry)) is None:
                continue
            entry = _with_paths(stored, path_from_stored)
            if (entry.root_id == root_id or entry.cwd == workspace) and not still_runs(
                entry.process, entry.process_start
            ):
                found.append(entry)
        return sorted(found, key=lambda one: one.started_at)


def _with_paths(entry: JournalEntry, convert: Callable[[str], str]) -> JournalEntry:
    """The entry with each of its paths converted: JSON cannot hold names that are not Unicode."""
    steps = (Step(convert(one.path), one.now, one.target, convert(one.staging)) for one in entry.steps)
    return msgspec.structs.replace(entry, steps=tuple(steps), cwd=convert(entry.cwd))
