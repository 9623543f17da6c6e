"""A journal of restorations: written before they start, so that an interrupted one can be finished."""

import os
import time
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import write_private
from crushpy.undo.restoration import Step
from crushpy.undo.states import path_from_stored, stored_path
from crushpy.util.processes import started_at, still_runs


class JournalStep(Data, frozen=True):
    step: Step
    """Its path as `stored_path` writes it."""
    staging: str = ""
    """The staging path of its new content, written the same way; empty if it has none."""


class JournalFork(Data, frozen=True):
    """The branch in which the conversation continues afterwards."""

    session_id: str
    """The session that is left."""
    message_id: str
    fork_id: str
    """The session id of the branch."""


class JournalEntry(Data, frozen=True):
    """One restoration."""

    id: str
    root_id: str
    session_id: str
    source: str
    """undo, redo or rewind."""
    steps: tuple[JournalStep, ...] = ()
    reverses: str = ""
    fork: JournalFork | None = None
    cwd: str = ""
    """The workspace, as `stored_path` writes it."""
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
        write_private(self._folder / f"{entry.id}.json", msgspec.json.encode(entry))

    def remove(self, entry_id: str) -> None:
        (self._folder / f"{entry_id}.json").unlink(missing_ok=True)

    def unfinished(self, root_id: str, workspace: str) -> list[JournalEntry]:
        """Those of a conversation or a workspace whose process is gone, oldest first."""
        found: list[JournalEntry] = []
        if not self._folder.is_dir():
            return found
        for file in self._folder.glob("*.json"):
            try:
                entry = msgspec.json.decode(file.read_bytes(), type=JournalEntry)
            except (OSError, msgspec.MsgspecError):
                continue
            if (entry.root_id == root_id or entry.cwd == stored_path(workspace)) and not still_runs(
                entry.process, entry.process_start
            ):
                found.append(entry)
        return sorted(found, key=lambda one: one.started_at)


def journal_step(step: Step, staging: str) -> JournalStep:
    return JournalStep(Step(stored_path(step.path), step.now, step.target), stored_path(staging))


def read_step(entry: JournalStep) -> tuple[Step, str]:
    step = entry.step
    return Step(path_from_stored(step.path), step.now, step.target), path_from_stored(entry.staging)
