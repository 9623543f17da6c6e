"""What was kept of files for a conversation goes with it, unless another one needs it."""

from collections.abc import Iterable
from pathlib import Path

from crushpy.engine.rewind.undo_files import RUNNING, WORKSPACES, UndoFiles
from crushpy.settings.schema import UndoSettings
from crushpy.storage.store import Store
from crushpy.undo.index_file import IndexFile
from crushpy.undo.object_store import ObjectStore
from crushpy.undo.states import FileState
from crushpy.util.uncancellable import in_thread


class KeptBytes:
    """Of one conversation that is about to be deleted."""

    def __init__(self, store: Store, folder: Path) -> None:
        """`folder` is where what files held is kept."""
        self._store = store
        self._folder = folder
        self._hashes: set[str] = set()

    async def find(self, root_id: str) -> None:
        """Before it is deleted: what was kept for it."""
        for change in await self._store.file_changes.load(root_id):
            self._hashes |= _kept((change.before, change.after))

    async def forget(self, cwd: str) -> None:
        """Once it is deleted: `cwd` is the folder it worked in."""
        left = await self._store.sessions.find_latest(cwd) is None
        if left:
            self._hashes |= await in_thread(self._leave, cwd)
        last, needed = 0, await in_thread(self._of_indexes)
        while self._hashes:
            last, states = await self._store.file_changes.load_states(last)
            if not last:
                break
            needed |= _kept(states)
        if unwanted := self._hashes - needed:
            await in_thread(ObjectStore(self._folder, 0).forget, unwanted)

    def _leave(self, cwd: str) -> set[str]:
        """Nobody works in this folder any more: its index goes too, and what only that knew."""
        index = UndoFiles(self._folder, Path(cwd), UndoSettings()).index_file
        found = _kept(state for _, _, state in index.read().values())
        index.remove()
        return found

    def _of_indexes(self) -> set[str]:
        """What crushpys know of their folders, now or when they are started again."""
        files = (file for name in (WORKSPACES, RUNNING) for file in (self._folder / name).glob("*.index"))
        return _kept(state for file in files for _, _, state in IndexFile(file, "").read().values())


def _kept(states: Iterable[FileState | None]) -> set[str]:
    return {one.hash for one in states if one is not None and one.kept == "store"}
