"""Takes snapshots of paths, so that they can be restored."""

import errno
import os
import stat
from pathlib import Path

from crushpy.security.safe_open import Folder, open_parent
from crushpy.undo.object_store import Committed, ObjectStore, hash_of, read_blob
from crushpy.undo.states import MISSING, FileState, stored_path

TOO_LARGE = "larger than undo.max_file_mb"
NO_ROOM = "there was no room for a copy (undo.max_mb)"
UNREADABLE = "could not be read"


class FileSnapshotter:
    """`committed` is what git stores already and need not be copied. Not bound to a thread."""

    def __init__(self, store: ObjectStore, folder: Path, max_file_bytes: int) -> None:
        self.store = store
        self.folder = folder
        self._max_file_bytes = max_file_bytes
        self.committed = Committed()
        self.problem = ""
        """Why the store could not keep the last file; empty if it could."""

    def read_state(self, path: str, *, keep: bool = False) -> FileState:
        """The state of an absolute path. With `keep`, a file's content is stored if possible."""
        try:
            with open_parent(path) as (folder, name):
                return self.read_in(folder, name, keep=keep)
        except (FileNotFoundError, NotADirectoryError):
            return MISSING
        except OSError as error:
            if error.errno == errno.ELOOP:
                return MISSING  # a parent folder is a link now
            return FileState("special", why=f"{UNREADABLE}: {error.strerror}")

    def read_in(self, folder: Folder, name: str, *, keep: bool = False, room: int | None = None) -> FileState:
        """The same for a name in an open folder; `room`: how many bytes may be stored."""
        try:
            status = folder.status(name)
        except FileNotFoundError:
            return MISSING
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return FileState("folder", mode=mode)
        if stat.S_ISLNK(status.st_mode):
            return FileState("link", target=stored_path(folder.link_target(name)))
        if not stat.S_ISREG(status.st_mode):
            return FileState("special", why="is not a regular file")
        try:
            status, content = _read(folder, name, self._max_file_bytes)
        except PermissionError:
            return _unread_state(status, UNREADABLE)
        if content is None:
            return _unread_state(status, TOO_LARGE)
        return self._store_content(content, stat.S_IMODE(status.st_mode), keep=keep, room=room)

    def _store_content(self, content: bytes, mode: int, *, keep: bool, room: int | None) -> FileState:
        digest = hash_of(content)
        if not keep:
            return FileState("file", digest, len(content), mode)
        if blob := self.committed.holds(content):
            return FileState("file", digest, len(content), mode, kept=f"git:{blob}")
        if room is not None and len(content) > room:
            return FileState("file", digest, len(content), mode, why=NO_ROOM)
        try:
            self.store.put(content, digest)
        except OSError as error:
            self.problem = f"{error.strerror or error} ({self.store.folder})"
            return FileState(
                "file", digest, len(content), mode, why=f"a copy could not be made: {error.strerror}"
            )
        return FileState("file", digest, len(content), mode, kept="store")

    def bytes_at(self, path: str) -> bytes | None:
        """The current content of a file; None if it is not a file, or too large."""
        try:
            with open_parent(path) as (folder, name):
                return _read(folder, name, self._max_file_bytes)[1]
        except OSError:
            return None

    def has_lost(self, state: FileState) -> bool:
        """Whether the content of a file is no longer stored."""
        if state.kept.startswith("git:"):
            return state.kept[4:] not in self.committed.blobs
        if state.kept == "store":
            return not self.store.has(state.hash)
        return state.kind == "file" and not state.why

    def content(self, state: FileState) -> bytes | None:
        """The content of a file as it was; None if it was not stored, or was removed."""
        content: bytes | None = None
        if state.kept.startswith("git:"):
            content = read_blob(self.folder, state.kept[4:])
            if content is not None and hash_of(content) != state.hash:
                content = None
        if content is None and len(state.hash) == 64:
            content = self.store.get(state.hash)
        return content


def _read(folder: Folder, name: str, limit: int) -> tuple[os.stat_result, bytes | None]:
    """A regular file's status and content; None for content larger than `limit`."""
    with open(folder.open_regular(name), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > limit:
            return status, None
        content = file.read()
        return os.fstat(file.fileno()), content if len(content) <= limit else None


def _unread_state(status: os.stat_result, why: str) -> FileState:
    mark = f"unread:{status.st_size}:{status.st_mtime_ns}"
    return FileState("file", mark, status.st_size, stat.S_IMODE(status.st_mode), why=why)
