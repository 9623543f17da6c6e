"""What every file of a workspace holds, looked at again in milliseconds: only what changed is read.

A file is the same while its times, size and inode are; a folder's list of names while its time is. Times
that are as young as the look itself prove nothing, so those are looked at again.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, open_folder
from crushpy.undo.file_snapshotter import Keeper
from crushpy.undo.index_file import IndexRow, Signature
from crushpy.undo.states import MISSING, FileState

YOUNG = 50_000_000
"""Nanoseconds: file systems stamp times in steps of some milliseconds."""
IGNORE_FILES = frozenset((".gitignore", ".ignore"))
VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))
"""Folders that programs fill for themselves: as good as ignored, whether a project says so or not."""


class IgnoreFilter(Protocol):
    """What is left out of one folder."""

    def ignores(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether an absolute path is left out."""
        ...

    def inside(self, folder: str) -> "IgnoreFilter":
        """The filter for a folder in it."""
        ...


class TooManyFiles(Exception):
    """The workspace holds more files than are watched."""


class LookStopped(Exception):
    """A look was broken off; what it had read by then is known."""


class Noticed(Data, frozen=True):
    """A path that is not what it was."""

    path: str
    before: FileState
    after: FileState


class Scan(Data, frozen=True):
    """What a look at the workspace found."""

    changes: tuple[Noticed, ...] = ()
    uncertain: tuple[str, ...] = ()
    """Paths that are seen now because the ignore files changed: what they were is not known."""


class _Folder(NamedTuple):
    time: int
    names: tuple[str, ...]
    folders: tuple[str, ...]
    rules: IgnoreFilter
    """By which names were left out."""


class _Entry(NamedTuple):
    signature: Signature | None
    state: FileState

    @property
    def copied(self) -> int:
        """Bytes that were copied for it."""
        return self.state.size if self.state.kept == "store" else 0


class WorkspaceIndex:
    """One workspace. Not thread-safe: one look at a time."""

    def __init__(
        self,
        root: Path,
        keeper: Keeper,
        rules: Callable[[], IgnoreFilter],
        *,
        max_files: int,
        max_bytes: int,
    ) -> None:
        """`rules`: those that hold in `root` now; of what git does not hold `max_bytes` are copied."""
        self.root = str(root)
        self._keeper = keeper
        self._rules = rules
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._entries: dict[str, _Entry] = {}
        """By absolute path; folders too."""
        self._folders: dict[str, _Folder] = {}
        self._copied = 0
        """Bytes of copies that what is known now needs."""
        self._fresh: set[str] = set()
        """Paths of which something else is known than when `fresh_rows` was asked last."""
        self._stopping = False
        self.ready = False
        """Everything was looked at once."""

    def scan(self) -> Scan:
        """Looks at the whole workspace: what differs from the last look.

        Raises TooManyFiles, LookStopped, OSError.
        """
        earlier = dict(self._folders)
        scan = self._look(earlier)
        if any(one.path.rpartition("/")[2] in IGNORE_FILES for one in scan.changes):
            self._folders.clear()  # other rules hold now, everywhere below
            again = self._look(earlier)
            merged = {one.path: one for one in scan.changes}
            for one in again.changes:
                first = merged.get(one.path)
                merged[one.path] = Noticed(one.path, first.before if first else one.before, one.after)
            scan = Scan(tuple(merged.values()), (*scan.uncertain, *again.uncertain))
        self.ready = True
        return scan

    def note(self, path: str, state: FileState) -> None:
        """A path is known to hold this now: whoever changed it says so."""
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            return
        if state.kind == "missing":
            self._know(path, None)
        elif path in self._entries or self.ready:
            self._know(path, _Entry(None, state))

    @property
    def fresh(self) -> bool:
        """Something is known that `fresh_rows` has not given yet."""
        return bool(self._fresh)

    def stop(self) -> None:
        """Breaks the look off that another thread makes, and every one after it."""
        self._stopping = True

    # --- looking -----------------------------------------------------------------------------------------

    def _look(self, earlier: dict[str, _Folder]) -> Scan:
        seen: dict[str, None] = {}
        now = time.time_ns()
        waiting: list[tuple[str, IgnoreFilter | None]] = [(self.root, None)]
        changed: dict[str, list[str]] = {}
        lstat = os.lstat
        entries = self._entries
        root = self.root
        while waiting:
            folder, rules = waiting.pop()
            if self._stopping:
                raise LookStopped
            known = self._folders.get(folder)
            try:
                status = lstat(folder)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                continue
            if folder != root:
                seen[folder] = None
                entry = entries.get(folder)
                if entry is None or entry.state.kind != "folder":
                    changed.setdefault(os.path.dirname(folder), []).append(folder)  # noqa: PTH120
            if known is not None:
                rules = known.rules  # where they changed, everything is listed anew
            else:
                rules = self._rules() if rules is None else rules.inside(folder)
            if known is None or known.time != status.st_mtime_ns:
                old = now - status.st_mtime_ns > YOUNG
                known = self._listed(folder, rules, status.st_mtime_ns if old else -1)
            prefix = folder if folder.endswith("/") else folder + "/"
            for name in known.names:
                path = prefix + name
                try:
                    found = lstat(path)
                except OSError:
                    continue
                seen[path] = None
                entry = entries.get(path)
                signature = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
                if entry is None or entry.signature != signature:
                    changed.setdefault(folder, []).append(path)
            if len(seen) > self._max_files:
                raise TooManyFiles
            for name in known.folders:
                waiting.append((prefix + name, rules))
        gone = [path for path in entries if path not in seen]
        return self._compared(changed, gone, now, earlier)

    def _listed(self, folder: str, rules: IgnoreFilter, stamp: int) -> _Folder:
        names: list[str] = []
        folders: list[str] = []
        committed = self._keeper.committed
        start = len(self.root.rstrip("/")) + 1
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if entry.name in VERSION_CONTROL:
                        continue
                    is_folder = entry.is_dir(follow_symlinks=False)
                    cache = is_folder and entry.name in CACHES
                    if cache or rules.ignores(entry.path, is_folder=is_folder):
                        tracked = committed.folders if is_folder else committed.paths
                        if entry.path[start:] not in tracked:
                            continue
                    (folders if is_folder else names).append(entry.name)
        except OSError:
            pass
        listed = _Folder(stamp, tuple(names), tuple(folders), rules)
        self._folders[folder] = listed
        return listed

    def _compared(
        self, changed: dict[str, list[str]], gone: list[str], now: int, earlier: dict[str, _Folder]
    ) -> Scan:
        """Reads what may have changed, folder by folder, and takes it into the index."""
        found: list[Noticed] = []
        uncertain: list[str] = []
        # One after the other: threads fight over the interpreter, and take twice as long.
        noticed = (one for folder, paths in changed.items() for one in self._read_some(folder, paths, now))
        for one in noticed:
            if one.before.kind == "missing" and _was_ignored(one.path, one.after, earlier):
                uncertain.append(one.path)
            else:
                found.append(one)
        for path in gone:
            known = self._entries[path]
            self._know(path, None)
            self._folders.pop(path, None)
            if not _is_there(path):  # else it is ignored now
                found.append(Noticed(path, known.state, MISSING))
        return Scan(tuple(found), tuple(uncertain))

    def _read_some(self, folder: str, paths: list[str], now: int) -> list[Noticed]:
        """Those of these paths of one folder that are not what they were."""
        if self._stopping:
            raise LookStopped
        found: list[Noticed] = []
        try:
            with open_folder(Path(folder)) as opened:
                found += (one for path in paths if (one := self._read(opened, path, now)))
        except OSError:
            pass  # the folder went away meanwhile: the next look tells
        return found

    def _read(self, folder: Folder, path: str, now: int) -> Noticed | None:
        known = self._entries.get(path)
        before = known.state if known else MISSING
        name = path.rpartition("/")[2]
        try:
            status = folder.status(name)
        except FileNotFoundError:
            return None
        state = self._keeper.look_in(folder, name, keep=True, room=self._max_bytes - self._copied)
        if state.kind == "missing":
            return None
        young = now - max(status.st_mtime_ns, status.st_ctime_ns) < YOUNG
        signature = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        self._know(path, _Entry(None if young or state.kind == "folder" else signature, state))
        return None if before.same(state) else Noticed(path, before, state)

    def _know(self, path: str, entry: _Entry | None) -> None:
        """From now on a path holds this; None: nothing."""
        known = self._entries.pop(path, None) if entry is None else self._entries.get(path)
        self._copied -= known.copied if known else 0
        if entry is not None:
            self._entries[path] = entry
            self._copied += entry.copied
        self._fresh.add(path)

    # --- kept between processes --------------------------------------------------------------------------

    def take(self, rows: Iterable[IndexRow]) -> None:
        """What was known of this workspace once."""
        for path, signature, state in rows:
            if state is not None:
                self._know(os.fsdecode(path), _Entry(signature, state))
        self._fresh.clear()

    def forget_lost(self) -> None:
        """What is kept no longer is read anew: whatever it is then counts as what it was."""
        for path, entry in list(self._entries.items()):
            if not self._is_kept(entry.state):
                self._know(path, None)

    def _is_kept(self, state: FileState) -> bool:
        if state.kept.startswith("git:"):
            return state.kept[4:] in self._keeper.committed.blobs
        if state.kept == "store":
            return self._keeper.store.has(state.hash)
        return state.kind != "file" or bool(state.why)

    def rows(self) -> list[IndexRow]:
        """All that is known."""
        self._fresh.clear()
        return [(os.fsencode(path), one.signature, one.state) for path, one in self._entries.items()]

    def fresh_rows(self) -> list[IndexRow]:
        """What is known now and was not when this, or `rows`, was asked last."""
        found: list[IndexRow] = []
        for path in self._fresh:
            entry = self._entries.get(path)
            found.append(
                (os.fsencode(path), entry.signature, entry.state)
                if entry
                else (os.fsencode(path), None, None)
            )
        self._fresh.clear()
        return found


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _was_ignored(path: str, state: FileState, earlier: dict[str, _Folder]) -> bool:
    """Whether the rules of the last look left this path out: then it may have been there all along."""
    above = path
    while above:
        above = above.rpartition("/")[0]
        known = earlier.get(above or "/")
        if known is not None:
            at = above.rstrip("/")
            for part in path[len(at) + 1 :].split("/"):
                at = f"{at}/{part}"
                if known.rules.ignores(at, is_folder=at != path or state.kind == "folder"):
                    return True
            return False
    return False
