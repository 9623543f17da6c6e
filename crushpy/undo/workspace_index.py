"""An index of every file in a workspace, so that a scan reads only what changed. Kept on disk.

A file is unchanged while its times, size and inode are; a folder's list of names while its time is. Times as
recent as the scan itself prove nothing, so those paths are checked again.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from crushpy.core.messages import Data
from crushpy.security.private_files import write_private
from crushpy.security.safe_open import Folder, open_folder
from crushpy.undo.object_store import FileSnapshotter
from crushpy.undo.states import MISSING, FileState, RecordedChange

Signature = tuple[int, int, int, int]
"""Modification time, status change time, size, inode."""
IndexRow = tuple[bytes, Signature | None, FileState]
_VERSION = 3


class _Rows(Data, frozen=True):
    version: int
    rows: Sequence[IndexRow]


def read_index(file: Path) -> Sequence[IndexRow]:
    """The stored rows of an index; none if the file is missing or damaged."""
    with suppress(OSError, msgspec.MsgspecError):
        stored = msgspec.msgpack.decode(file.read_bytes(), type=_Rows)
        if stored.version == _VERSION:
            return stored.rows
    return ()


def write_index(file: Path, rows: Sequence[IndexRow]) -> None:
    """Replaces the file. Not synced: it must survive this process, not a crash of the machine. Raises
    OSError."""
    write_private(file, msgspec.msgpack.encode(_Rows(_VERSION, rows)), sync=False)


CLOCK_STEP_NS = 50_000_000
"""Nanoseconds: file systems record times in steps of some milliseconds."""
IGNORE_FILES = frozenset((".gitignore", ".ignore"))
VERSION_CONTROL = frozenset((".git", ".hg", ".svn", ".jj"))
CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))
"""Caches of programs, treated as ignored even if the project does not ignore them."""


class IgnoreFilter(Protocol):
    """What is skipped in one folder."""

    def ignores(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether an absolute path is skipped."""
        ...

    def inside(self, folder: str) -> "IgnoreFilter":
        """The filter for a folder in it."""
        ...


class TooManyFiles(Exception):
    """The workspace has more files than are indexed."""


class ScanStopped(Exception):
    """A scan was stopped; what it had read by then is in the index."""


class _Folder(NamedTuple):
    time: int
    names: tuple[str, ...]
    folders: tuple[str, ...]
    rules: IgnoreFilter
    """The rules that names were filtered by."""


class _Entry(NamedTuple):
    signature: Signature | None
    state: FileState

    @property
    def copied(self) -> int:
        """Bytes stored for it."""
        return self.state.size if self.state.kept == "store" else 0


class WorkspaceIndex:
    """One workspace. Not thread-safe: one scan at a time."""

    def __init__(
        self,
        root: Path,
        snapshotter: FileSnapshotter,
        rules: Callable[[], IgnoreFilter],
        *,
        max_files: int,
        max_bytes: int,
    ) -> None:
        """`rules`: those of `root`; at most `max_bytes` of what git does not store are copied."""
        self.root = str(root)
        self._snapshotter = snapshotter
        self._rules = rules
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._entries: dict[str, _Entry] = {}
        """By absolute path, including folders."""
        self._folders: dict[str, _Folder] = {}
        self._copied = 0
        """Bytes of copies that the current index needs."""
        self.changed = False
        """Since the last call of `rows`."""
        self._stopping = False
        self.ready = False
        """True after the first complete scan."""

    def scan(self) -> list[RecordedChange]:
        """Scans the whole workspace; returns what changed since the last scan.

        Raises TooManyFiles, ScanStopped, OSError.
        """
        earlier = dict(self._folders)
        changes = self._scan_once(earlier)
        if any(change.path.rpartition("/")[2] in IGNORE_FILES for change in changes):
            self._folders.clear()  # other rules apply now, everywhere below
            merged = {change.path: change for change in changes}
            for noticed in self._scan_once(earlier):
                first = merged.get(noticed.path)
                merged[noticed.path] = RecordedChange(
                    noticed.path, first.before if first else noticed.before, noticed.after
                )
            changes = list(merged.values())
        self.ready = True
        return changes

    def note(self, path: str, state: FileState) -> None:
        """Records the state of a path that was changed by a recorded call."""
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            return
        if state.kind == "missing":
            self._set_entry(path, None)
        elif path in self._entries or self.ready:
            self._set_entry(path, _Entry(None, state))

    def stop(self) -> None:
        """Stops the scan of another thread, and every later one."""
        self._stopping = True

    # --- scanning ----------------------------------------------------------------------------------------

    def _scan_once(self, earlier: dict[str, _Folder]) -> list[RecordedChange]:
        seen: dict[str, None] = {}
        now = time.time_ns()
        queue: list[tuple[str, IgnoreFilter | None]] = [(self.root, None)]
        changed: dict[str, list[str]] = {}
        lstat = os.lstat
        entries = self._entries
        root = self.root
        while queue:
            folder, rules = queue.pop()
            if self._stopping:
                raise ScanStopped
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
                rules = known.rules  # if they changed, everything is listed again
            else:
                rules = self._rules() if rules is None else rules.inside(folder)
            if known is None or known.time != status.st_mtime_ns:
                is_old = now - status.st_mtime_ns > CLOCK_STEP_NS
                known = self._list_folder(folder, rules, status.st_mtime_ns if is_old else -1)
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
                queue.append((prefix + name, rules))
        removed = [path for path in entries if path not in seen]
        return self._compare(changed, removed, now, earlier)

    def _list_folder(self, folder: str, rules: IgnoreFilter, stamp: int) -> _Folder:
        names: list[str] = []
        folders: list[str] = []
        committed = self._snapshotter.committed
        start = len(self.root.rstrip("/")) + 1
        with suppress(OSError), os.scandir(folder) as found:
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
        listed = _Folder(stamp, tuple(names), tuple(folders), rules)
        self._folders[folder] = listed
        return listed

    def _compare(
        self, changed: dict[str, list[str]], removed: list[str], now: int, earlier: dict[str, _Folder]
    ) -> list[RecordedChange]:
        """Reads what may have changed, folder by folder, and updates the index."""
        # Sequential: threads would contend for the interpreter and take twice as long.
        noticed = (path for folder, paths in changed.items() for path in self._read_paths(folder, paths, now))
        found = [
            change
            for change in noticed
            if change.before.kind != "missing" or not _was_ignored(change, earlier)
        ]
        for path in removed:
            known = self._entries[path]
            self._set_entry(path, None)
            self._folders.pop(path, None)
            if not os.path.lexists(path):  # otherwise it is ignored now
                found.append(RecordedChange(path, known.state, MISSING))
        return found

    def _read_paths(self, folder: str, paths: list[str], now: int) -> list[RecordedChange]:
        """Those of these paths of one folder that changed."""
        if self._stopping:
            raise ScanStopped
        found: list[RecordedChange] = []
        # If the folder was removed meanwhile, the next scan notices.
        with suppress(OSError), open_folder(Path(folder)) as opened:
            found += (one for path in paths if (one := self._read(opened, path, now)))
        return found

    def _read(self, folder: Folder, path: str, now: int) -> RecordedChange | None:
        known = self._entries.get(path)
        before = known.state if known else MISSING
        name = path.rpartition("/")[2]
        try:
            status = folder.status(name)
        except FileNotFoundError:
            return None
        state = self._snapshotter.read_in(folder, name, keep=True, room=self._max_bytes - self._copied)
        if state.kind == "missing":
            return None
        is_recent = now - max(status.st_mtime_ns, status.st_ctime_ns) < CLOCK_STEP_NS
        signature = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        self._set_entry(path, _Entry(None if is_recent or state.kind == "folder" else signature, state))
        return None if before.same(state) else RecordedChange(path, before, state)

    def _set_entry(self, path: str, entry: _Entry | None) -> None:
        """Sets the entry of a path; None removes it."""
        known = self._entries.pop(path, None) if entry is None else self._entries.get(path)
        self._copied -= known.copied if known else 0
        if entry is not None:
            self._entries[path] = entry
            self._copied += entry.copied
        self.changed = True

    def take(self, rows: Iterable[IndexRow]) -> None:
        """Loads stored rows whose content is still stored; others are read again."""
        for path, signature, state in rows:
            if not self._snapshotter.has_lost(state):
                self._set_entry(os.fsdecode(path), _Entry(signature, state))
        self.changed = False

    def rows(self) -> list[IndexRow]:
        self.changed = False
        return [(os.fsencode(path), entry.signature, entry.state) for path, entry in self._entries.items()]


def _was_ignored(change: RecordedChange, earlier: dict[str, _Folder]) -> bool:
    """Whether the rules of the last scan skipped this path: it may have existed all along."""
    path = above = change.path
    is_folder = change.after is not None and change.after.kind == "folder"
    while above:
        above = above.rpartition("/")[0]
        known = earlier.get(above or "/")
        if known is not None:
            current = above.rstrip("/")
            for part in path[len(current) + 1 :].split("/"):
                current = f"{current}/{part}"
                if known.rules.ignores(current, is_folder=current != path or is_folder):
                    return True
            return False
    return False
