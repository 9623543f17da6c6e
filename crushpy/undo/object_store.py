"""Snapshots of paths, and the contents of files as they were: in our own store, and in the project's git."""

import errno
import hashlib
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.core.paths import private_dir
from crushpy.security.private_files import new_file, write_private
from crushpy.security.safe_git import git_output
from crushpy.security.safe_open import Folder, open_parent
from crushpy.undo.states import MISSING, FileState, stored_path


class Committed(Data, frozen=True):
    """The files of the current commit below one folder."""

    blobs: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    """Relative to the folder."""
    folders: frozenset[str] = frozenset()
    """Every folder that contains one of them."""

    def holds(self, content: bytes) -> str:
        """The id of the git object with exactly this content; empty if there is none."""
        if not self.blobs:
            return ""
        data = b"blob %d\0%b" % (len(content), content)
        if len(next(iter(self.blobs))) == 64:
            blob = hashlib.sha256(data).hexdigest()
        else:
            blob = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        return blob if blob in self.blobs else ""


def committed(folder: Path) -> Committed:
    """The current commit below `folder`; empty without a repository or without git."""
    listing = git_output(folder, "ls-tree", "-r", "-z", "HEAD") or b""
    blobs: set[str] = set()
    paths: set[str] = set()
    folders: set[str] = set()
    for row in listing.split(b"\0"):
        head, _, name = row.partition(b"\t")
        words = head.split()
        if len(words) == 3 and words[1] == b"blob":
            blobs.add(words[2].decode())
            paths.add(os.fsdecode(name))
    for path in paths:
        above = path
        while (above := above.rpartition("/")[0]) and above not in folders:
            folders.add(above)
    return Committed(frozenset(blobs), frozenset(paths), frozenset(folders))


PRUNE_INTERVAL_BYTES = 32_000_000
"""Bytes written before the total size is checked again; a tenth of the limit if that is less."""
_STORED, _COMPRESSED = b"\0", b"\1"


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class ObjectStore:
    """One per home of crushpy, shared by processes. Compressed, bounded, least recently used goes first."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._objects = folder / "objects"
        self._max_bytes = max_bytes
        self._check_interval = min(PRUNE_INTERVAL_BYTES, max_bytes // 10)
        self._unchecked_bytes = self._check_interval  # so that the first write checks

    @property
    def machine(self) -> str:
        """An id of this home on this machine: what is stored here can only be restored here."""
        file = self.folder / "machine"
        try:
            name = file.read_text().strip()
        except FileNotFoundError:
            name = new_id()
            write_private(file, name.encode())
        machine_id = ""
        with suppress(OSError):
            machine_id = Path("/etc/machine-id").read_text().strip()
        return f"{name}{machine_id[:8]}"

    def put(self, content: bytes, digest: str) -> None:
        """Stores `content`, whose hash is `digest`. Raises OSError if there is no room."""
        path = self._file(digest)
        with suppress(OSError):
            os.utime(path)  # recently used
            return
        compressed = zlib.compress(content, 1)
        data = _COMPRESSED + compressed if len(compressed) < len(content) else _STORED + content
        if not path.parent.is_dir():
            private_dir(path.parent)
        with new_file(path, replace=True, sync=False) as stream:
            stream.write(data)
        self._unchecked_bytes += len(data)
        if self._unchecked_bytes >= self._check_interval:
            self._unchecked_bytes = 0
            self._prune()

    def has(self, digest: str) -> bool:
        return self._file(digest).exists()

    def get(self, digest: str) -> bytes | None:
        """The content with this hash; None if it was removed or is damaged."""
        try:
            data = self._file(digest).read_bytes()
            content = zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]
        except (OSError, zlib.error):
            return None
        return content if hash_of(content) == digest else None

    def forget(self, digests: set[str]) -> None:
        for digest in digests:
            with suppress(OSError):
                self._file(digest).unlink()

    def _prune(self) -> None:
        """Deletes the least recently used until the rest is small enough."""
        found: list[tuple[int, int, str]] = []
        for folder, _, names in os.walk(self._objects):
            for path in (f"{folder}/{name}" for name in names):
                with suppress(OSError):
                    status = os.lstat(path)
                    found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        if total > self._max_bytes:
            for _, size, path in sorted(found):
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
                total -= size
                if total <= self._max_bytes * 0.9:
                    break

    def _file(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest[2:]


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
        digest, kept, why = hash_of(content), "", ""
        if not keep:
            pass
        elif blob := self.committed.holds(content):
            kept = f"git:{blob}"
        elif room is not None and len(content) > room:
            why = NO_ROOM
        else:
            try:
                self.store.put(content, digest)
                kept = "store"
            except OSError as error:
                self.problem = f"{error.strerror or error} ({self.store.folder})"
                why = f"a copy could not be made: {error.strerror}"
        return FileState("file", digest, len(content), mode, kept=kept, why=why)

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
        source, _, blob = state.kept.partition(":")
        if source == "git" and blob.isalnum():
            content = git_output(self.folder, "cat-file", "blob", blob)
            if content is not None and hash_of(content) == state.hash:
                return content
        return self.store.get(state.hash) if len(state.hash) == 64 else None


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
