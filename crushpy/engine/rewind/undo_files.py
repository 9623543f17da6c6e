"""The undo storage of one workspace: object store, index and journal, created when first used."""

import platform
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from crushpy.settings.schema import UndoSettings
from crushpy.storage.store import Store
from crushpy.undo.journal import Journal
from crushpy.undo.object_store import FileSnapshotter, ObjectStore, committed, hash_of
from crushpy.undo.states import FileState, RecordedChange
from crushpy.undo.workspace_index import WorkspaceIndex, read_index, write_index
from crushpy.util.uncancellable import in_thread

JOURNAL = "journal"
WORKSPACES = "workspaces"
MEGABYTE = 1_000_000


class UndoFiles:
    """All methods may block and must be called in a thread. One scan runs at a time."""

    def __init__(self, folder: Path, workspace: Path, settings: UndoSettings) -> None:
        """`folder` is the store of file contents, outside of every project."""
        self.folder = folder
        self.workspace = workspace.resolve()
        self.settings = settings
        self.lock_file = folder / "restoring.lock"
        """Locked while files are restored: one process at a time."""
        self.journal = Journal(folder / JOURNAL)
        self._looking = threading.Lock()
        self._index: WorkspaceIndex | None = None
        self._added: list[UndoFiles] = []
        self._stopped = False

    def add(self, folder: Path) -> None:
        """Also records what commands change in this folder."""
        if folder not in [self.workspace, *(added.workspace for added in self._added)]:
            self._added.append(UndoFiles(self.folder, folder, self.settings))

    @cached_property
    def snapshotter(self) -> FileSnapshotter:
        store = ObjectStore(self.folder, self.settings.max_mb * MEGABYTE)
        return FileSnapshotter(store, self.workspace, self.settings.max_file_mb * MEGABYTE)

    @cached_property
    def machine(self) -> str:
        """The id of the store; empty if nothing can be stored, and so nothing restored."""
        try:
            return self.snapshotter.store.machine
        except OSError as error:
            self.snapshotter.problem = f"{error.strerror or error} ({self.folder})"
            return ""

    def recorded(self, changes: Iterable[RecordedChange], **about: Any) -> list[RecordedChange]:
        """The changes as they are stored; `about`: the other fields of all."""
        own = {"machine": self.machine, "host": platform.node() or "this machine", "created_at": time.time()}
        return [msgspec.structs.replace(change, **own, **about) for change in changes]

    # --- the index ---------------------------------------------------------------------------------------

    def look(self) -> list[RecordedChange]:
        """Scans the workspace for changes since the last scan. Raises TooManyFiles, ScanStopped."""
        with self._looking:
            found = self._opened_index().scan()
        return found + [seen for files in self._added for seen in files.look()]

    def stop(self) -> None:
        """Stops the current scan, and every later one."""
        self._stopped = True
        for files in self._added:
            files.stop()
        if self._index is not None:
            self._index.stop()

    def note(self, path: str) -> None:
        """Records a path whose change is already recorded, so that no scan reports it."""
        with self._looking:
            if self._index is not None:
                self._index.note(path, self.snapshotter.read_state(path, keep=True))
        for files in self._added:
            if Path(path).is_relative_to(files.workspace):
                files.note(path)

    def close(self) -> None:
        """Stores the index for the next process."""
        for files in self._added:
            files.close()
        with self._looking:
            index = self._index
            if index is not None and index.changed:
                with suppress(OSError):  # otherwise everything is read again
                    write_index(self.index_file, index.rows())

    def _opened_index(self) -> WorkspaceIndex:
        from crushpy.tools.search.files_below import IgnoreRules

        if self._index is None:
            self.snapshotter.committed = committed(self.workspace)
            self._index = WorkspaceIndex(
                self.workspace,
                self.snapshotter,
                lambda: IgnoreRules.at(self.workspace),
                # With more files, a scan takes too long to run around every command.
                max_files=self.settings.max_files if self.settings.shell == "auto" else 2**62,
                max_bytes=self.settings.max_mb * MEGABYTE // 2,
            )
            self._index.take(read_index(self.index_file))
            if self._stopped:
                self._index.stop()
        return self._index

    @property
    def index_file(self) -> Path:
        name = hash_of(str(self.workspace).encode("utf-8", "surrogateescape"))[:32]
        return self.folder / WORKSPACES / f"{name}.index"


def any_unfinished(folder: Path) -> bool:
    """Whether a restoration may have been interrupted. Cheap: lists a folder."""
    return any(True for _ in (folder / JOURNAL).glob("*.json"))


async def stored_contents(store: Store, root_id: str) -> set[str]:
    """The hashes of the file contents that were stored for a conversation."""
    changes = await store.file_changes.load(root_id)
    return _kept(state for change in changes for state in (change.before, change.after))


async def forget_contents(store: Store, folder: Path, hashes: set[str], folders: Iterable[str]) -> None:
    """Deletes stored file contents of a deleted conversation, unless another one needs them.

    `folder` is the store of file contents, `folders` are those that the conversation worked in.
    """
    for cwd in folders:
        if await store.sessions.find_latest(cwd) is None:
            hashes = hashes | await in_thread(_remove_index, folder, cwd)

    def of_indexes() -> set[str]:
        files = (folder / WORKSPACES).glob("*.index")
        return _kept(state for file in files for _, _, state in read_index(file))

    last, needed = 0, await in_thread(of_indexes)
    while hashes:
        last, states = await store.file_changes.load_states(last)
        if not last:
            break
        needed |= _kept(states)
    if unwanted := hashes - needed:
        await in_thread(ObjectStore(folder, 0).forget, unwanted)


def _remove_index(folder: Path, cwd: str) -> set[str]:
    """Removes the index of a folder without conversations; returns what only the index referred to."""
    index = UndoFiles(folder, Path(cwd), UndoSettings()).index_file
    found = _kept(state for _, _, state in read_index(index))
    with suppress(OSError):
        index.unlink()
    return found


def _kept(states: Iterable[FileState | None]) -> set[str]:
    return {state.hash for state in states if state is not None and state.kept == "store"}
