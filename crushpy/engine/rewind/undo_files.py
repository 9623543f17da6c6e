"""What is kept of the files of one workspace: the store, the index and the journal, made when first used."""

import os
import platform
import threading
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.settings.schema import UndoSettings

if TYPE_CHECKING:
    from crushpy.undo.file_snapshotter import Keeper
    from crushpy.undo.index_file import IndexFile
    from crushpy.undo.journal import Journal
    from crushpy.undo.running_commands import LeftBehind, RunningCommand, RunningCommands
    from crushpy.undo.workspace_index import Scan, WorkspaceIndex

JOURNAL = "journal"
RUNNING = "running"
WORKSPACES = "workspaces"
MEGABYTE = 1_000_000


class UndoFiles:
    """All methods may take a while and belong into a thread; one look at a time is made, whoever asks."""

    def __init__(self, folder: Path, workspace: Path, settings: UndoSettings) -> None:
        """`folder` is where bytes are kept, outside of every project."""
        self.folder = folder
        self.workspace = workspace.resolve()
        self._settings = settings
        self._looking = threading.Lock()
        self._keeper: Keeper | None = None
        self._index: WorkspaceIndex | None = None
        self._stopped = False
        self._holds_index = False
        """The index of this process is on disk."""

    def elsewhere(self, workspace: str) -> "UndoFiles":
        """The same for another workspace, with an index of its own."""
        return UndoFiles(self.folder, Path(workspace), self._settings)

    @property
    def keeper(self) -> "Keeper":
        if self._keeper is None:
            from crushpy.undo.file_snapshotter import Keeper
            from crushpy.undo.object_store import ObjectStore

            store = ObjectStore(self.folder, self._settings.max_mb * MEGABYTE)
            self._keeper = Keeper(store, self.workspace, self._settings.max_file_mb * MEGABYTE)
        return self._keeper

    @property
    def journal(self) -> "Journal":
        from crushpy.undo.journal import Journal

        return Journal(self.folder / JOURNAL)

    @property
    def lock_file(self) -> Path:
        """Held while files are put back: one process at a time."""
        return self.folder / "restoring.lock"

    @cached_property
    def machine(self) -> str:
        """Empty where nothing can be kept: then nothing can be put back either."""
        try:
            return self.keeper.store.machine
        except OSError as error:
            self.keeper.problem = f"{error.strerror or error} ({self.folder})"
            return ""

    @property
    def max_files(self) -> int:
        """From here on a look at the workspace takes too long to be made around every command."""
        return self._settings.max_files

    @property
    def host(self) -> str:
        return platform.node() or "this machine"

    # --- the index ---------------------------------------------------------------------------------------

    def look(self) -> "Scan":
        """What differs in the workspace since the last look. Raises TooManyFiles, LookStopped."""
        with self._looking:
            return self._opened_index().scan()

    def stop(self) -> None:
        """Breaks off the look that is being made. None can be made after it."""
        self._stopped = True
        if self._index is not None:
            self._index.stop()

    def note(self, path: str) -> None:
        """A path was changed by somebody who records that: no later look is to find it."""
        with self._looking:
            if self._index is not None:
                self._index.note(path, self.keeper.look(path, keep=True))

    def close(self) -> None:
        """Keeps what is known for the next process, where there is room."""
        with self._looking:
            index = self._index
            if index is not None and (self._holds_index or index.fresh):
                with suppress(OSError):  # else everything is read anew
                    self.index_file.write(index.rows())
            if self._holds_index:
                self.running.clear()
                self._own_index().remove()

    def _opened_index(self) -> "WorkspaceIndex":
        if self._index is None:
            self._index = self._made_index()
            self._index.take(self.index_file.read().values())
            self._index.forget_lost()
            self.running.sweep()
            if self._stopped:
                self._index.stop()
        return self._index

    def _made_index(self) -> "WorkspaceIndex":
        from crushpy.tools.search.ignore_rules import IgnoreRules
        from crushpy.undo.git_objects import committed
        from crushpy.undo.workspace_index import WorkspaceIndex

        self.keeper.committed = committed(self.workspace)
        return WorkspaceIndex(
            self.workspace,
            self.keeper,
            lambda: IgnoreRules.at(self.workspace),
            max_files=self.max_files if self._settings.shell == "auto" else 2**62,
            max_bytes=self._settings.max_mb * MEGABYTE // 2,
        )

    @cached_property
    def _name(self) -> str:
        from crushpy.undo.object_store import hash_of

        return hash_of(str(self.workspace).encode("utf-8", "surrogateescape"))[:32]

    @property
    def index_file(self) -> "IndexFile":
        """What the last process knew of this workspace."""
        from crushpy.undo.index_file import IndexFile

        return IndexFile(self.folder / WORKSPACES / f"{self._name}.index", str(self.workspace))

    # --- while a command runs ----------------------------------------------------------------------------

    @cached_property
    def running(self) -> "RunningCommands":
        from crushpy.undo.running_commands import RunningCommands

        return RunningCommands(self.folder / RUNNING, self._name)

    def command_begins(self, command: "RunningCommand") -> None:
        """Should we be killed, what it changed can be told by this. Raises OSError."""
        with self._looking:
            self._keep_index()
            self.running.write(command)

    def changes_of(self, left: "LeftBehind") -> "Scan":
        """What is not as it was before a command whose crushpy is gone. Raises TooManyFiles, OSError."""
        from crushpy.undo.index_file import IndexFile

        rows = IndexFile(left.index, str(self.workspace)).read()
        if not rows:
            raise FileNotFoundError(2, "what the folder held before it is not known", str(left.index))
        index = self._made_index()
        index.take(rows.values())
        return index.scan()

    def _own_index(self) -> "IndexFile":
        from crushpy.undo.index_file import IndexFile

        return IndexFile(self.running.index, str(self.workspace))

    def keep_index(self) -> None:
        """What is known now, and recorded, outlives this process. Raises OSError."""
        with self._looking:
            if self._holds_index:
                self._keep_index()

    def _keep_index(self) -> None:
        if self._index is None:
            return
        if not self._holds_index:
            self._own_index().write(self._index.rows())
            self._holds_index = True
        elif self._index.fresh:
            self._own_index().add(self._index.fresh_rows())


def any_unfinished(folder: Path) -> bool:
    """Whether a restoration or a command may have been cut short; a look at folders that are mostly empty."""
    notes = [file for name in (JOURNAL, RUNNING) for file in _in(folder / name) if file.endswith(".json")]
    return bool(notes)


def _in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []
