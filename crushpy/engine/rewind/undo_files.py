"""What is kept of the files of one workspace: the store, the index and the journal, made when first used."""

import platform
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.settings.schema import UndoSettings

if TYPE_CHECKING:
    from crushpy.undo.journal import Journal
    from crushpy.undo.keeper import Keeper
    from crushpy.undo.workspace_index import Scan, WorkspaceIndex

JOURNAL = "journal"
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

    @property
    def keeper(self) -> "Keeper":
        if self._keeper is None:
            from crushpy.undo.keeper import Keeper
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
        """What differs in the workspace since the last look. Raises TooManyFiles."""
        with self._looking:
            return self._opened_index().scan()

    def note(self, path: str) -> None:
        """A path was changed by somebody who records that: no later look is to find it."""
        with self._looking:
            if self._index is not None:
                self._index.note(path, self.keeper.look(path, keep=True))

    def close(self) -> None:
        """Keeps what is known for the next process, where there is room."""
        with self._looking:
            if self._index is not None:
                try:
                    self._index.save()
                except OSError:
                    pass  # everything is read anew then

    def _opened_index(self) -> "WorkspaceIndex":
        if self._index is None:
            from crushpy.tools.search.ignore_rules import IgnoreRules
            from crushpy.undo.git_objects import committed
            from crushpy.undo.object_store import hash_of
            from crushpy.undo.workspace_index import WorkspaceIndex

            self.keeper.committed = committed(self.workspace)
            name = hash_of(str(self.workspace).encode("utf-8", "surrogateescape"))[:32]
            self._index = WorkspaceIndex(
                self.workspace,
                self.keeper,
                lambda: IgnoreRules.at(self.workspace),
                max_files=self.max_files if self._settings.shell == "auto" else 2**62,
                max_bytes=self._settings.max_mb * MEGABYTE // 2,
                file=self.folder / "workspaces" / f"{name}.index",
            )
            self._index.load()
        return self._index


def any_unfinished(folder: Path) -> bool:
    """Whether a restoration may have been cut short; a look at a folder that is mostly empty."""
    try:
        return any((folder / JOURNAL).iterdir())
    except OSError:
        return False
