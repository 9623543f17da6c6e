"""What is noted on disk in case crushpy is killed: restorations of files, so that they can be finished."""

import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import write_private
from crushpy.undo.restoration import Step
from crushpy.util.processes import started_at, still_runs


class JournalFork(Data, frozen=True):
    """The fork in which the conversation continues afterwards."""

    session_id: str
    """The session that is left."""
    message_id: str
    fork_id: str


class JournalEntry(Data, frozen=True, kw_only=True):
    """A restoration that was started, for a conversation in a workspace."""

    id: str
    root_id: str
    session_id: str
    source: str
    """undo, redo or rewind."""
    workspace: str
    steps: tuple[Step, ...]
    reverses: str = ""
    fork: JournalFork | None = None


class Journal:
    """The restorations that were started and not finished. The name of each file tells who wrote it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, entry: JournalEntry) -> None:
        """Raises OSError."""
        me = os.getpid()
        file = self._folder / f"{me}-{started_at(me)}-{entry.id}.json"
        # Unlike msgspec, Python's JSON can hold the names of files that are not Unicode.
        write_private(file, json.dumps(msgspec.to_builtins(entry)).encode())

    def remove(self, entry_id: str) -> None:
        """Removes an entry, whichever process wrote it."""
        for file in self._folder.glob(f"*-{entry_id}.json"):
            file.unlink(missing_ok=True)

    def find_left(self, root_id: str, workspace: str) -> list[JournalEntry]:
        """Those of a conversation or a workspace whose process is gone, oldest first."""
        found: list[tuple[float, JournalEntry]] = []
        for file in self._folder.glob("*.json"):
            with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
                entry = msgspec.convert(json.loads(file.read_bytes()), JournalEntry)
                if not _owner_runs(file) and (entry.root_id == root_id or entry.workspace == workspace):
                    found.append((file.stat().st_mtime, entry))
        return [entry for _, entry in sorted(found, key=lambda item: item[0])]


def _owner_runs(file: Path) -> bool:
    process, _, rest = file.name.partition("-")
    return process.isdigit() and still_runs(int(process), rest.partition("-")[0])
