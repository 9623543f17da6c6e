"""Opens exactly what a resolved path names, so that what was checked is what is used.

No link on the way is followed: a real path (`os.path.realpath`) contains none, and if one was created since,
opening fails with ELOOP.
"""

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

_TRAVERSE_FLAGS = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""With O_PATH a folder that may be entered but not listed can still be traversed."""
_NO_FOLLOW_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Errors of file systems without hard links."""


class Folder:
    """A folder held by a descriptor: whatever happens to its path, operations apply to this folder.

    Names are single ones, without a slash. Close it, or use it with `with`.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        """Its path when it was opened."""
        self.handle = handle

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of the file `name`. Raises ELOOP if it is a link."""
        return os.open(_require_name(name), flags | _NO_FOLLOW_FLAGS, mode, dir_fd=self.handle)

    def open_regular(self, name: str) -> int:
        """A descriptor to read the regular file `name`. Raises NotRegular for anything else."""
        status = self.status(name)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self.path / name))
        _require_regular(status.st_mode)
        # A pipe may have replaced it since, and some files of /proc block: not with this flag.
        handle = self.open(name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            _require_regular(os.fstat(handle).st_mode)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def status(self, name: str) -> os.stat_result:
        """The status of `name`, which may be a link."""
        return os.stat(_require_name(name), dir_fd=self.handle, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def link_target(self, name: str) -> str:
        return os.readlink(_require_name(name), dir_fd=self.handle)

    def descend(self, names: Sequence[str]) -> "Folder":
        """The folder at the end of these names. Raises ELOOP if one of them is a link."""
        handle = _descend(self.handle, [_require_name(name) for name in names])
        return Folder(self.path.joinpath(*names), handle)

    def make_folder(self, name: str) -> None:
        os.mkdir(_require_name(name), dir_fd=self.handle)

    def move(self, name: str, folder: "Folder", new: str, *, replace: bool) -> None:
        """Renames `name` to `new` in `folder` atomically. Without `replace` it fails if `new` exists; a file
        that is created meanwhile is replaced only on a file system without hard links."""
        if not replace:
            try:
                os.link(
                    _require_name(name),
                    _require_name(new),
                    src_dir_fd=self.handle,
                    dst_dir_fd=folder.handle,
                    follow_symlinks=False,
                )
                self.remove(name)
                return
            except OSError as error:
                if error.errno not in _NO_HARD_LINK_ERRORS or folder.exists(new):
                    raise
        os.replace(_require_name(name), _require_name(new), src_dir_fd=self.handle, dst_dir_fd=folder.handle)

    def remove(self, name: str) -> None:
        """Removes a file or a link, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(_require_name(name), dir_fd=self.handle)

    def remove_folder(self, name: str) -> None:
        """Removes an empty folder."""
        os.rmdir(_require_name(name), dir_fd=self.handle)

    def write_new(self, name: str, content: bytes, mode: int) -> int:
        """Creates the file `name` with this content, synced to disk; returns its open descriptor.

        Raises OSError, and then there is no such file.
        """
        handle = self.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
            os.fsync(handle)
        except BaseException:
            os.close(handle)
            self.remove(name)
            raise
        return handle

    @contextmanager
    def entries(self) -> Generator[Iterator["os.DirEntry[str]"]]:
        """Its entries, as from `os.scandir`; their paths are their names."""
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.handle)
        try:
            with os.scandir(handle) as found:
                yield found
        finally:
            os.close(handle)

    def as_cwd(self) -> str:
        """A path that a new process can use to start in this folder, if the system has one."""
        proc_path = f"/proc/self/fd/{self.handle}"
        return proc_path if sys.platform == "linux" and Path(proc_path).exists() else str(self.path)


def open_folder(path: Path) -> Folder:
    """Opens the folder at a resolved path. Raises OSError: ELOOP if a part of it is now a link."""
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} is not a real path")
    root = os.open(path.anchor, _TRAVERSE_FLAGS | os.O_CLOEXEC)
    try:
        return Folder(path, _descend(root, path.parts[1:]))
    finally:
        os.close(root)


def read_names(folder: Path, most: int | None = None) -> list[str] | None:
    """The names in the folder at a resolved path, at most so many; None if it cannot be listed."""
    try:
        with open_folder(folder) as opened, opened.entries() as entries:
            return [entry.name for entry in islice(entries, most)]
    except (OSError, ValueError):
        return None


def make_folders(path: Path) -> tuple[Folder, list[Path]]:
    """Opens the folder at a resolved path, creating missing ones; also returns those, innermost first."""
    created: list[Path] = []
    missing: list[str] = []
    current = path
    while True:
        try:
            folder = open_folder(current)
            break
        except FileNotFoundError:
            if current == current.parent:
                raise
            missing.append(current.name)
            current = current.parent
    try:
        while missing:
            name = missing.pop()
            with suppress(FileExistsError):  # another process just created it
                folder.make_folder(name)
                created.insert(0, folder.path / name)
            inner = folder.descend([name])
            folder.close()
            folder = inner
    except BaseException:
        folder.close()
        remove_if_empty(created)
        raise
    return folder, created


def remove_if_empty(folders: list[Path]) -> None:
    """Removes those of these folders that are empty; innermost first."""
    for path in folders:
        with suppress(OSError), open_folder(path.parent) as parent:
            parent.remove_folder(path.name)


@contextmanager
def open_parent(path: str, *, make: bool = False) -> Generator[tuple[Folder, str]]:
    """The parent folder of a resolved path, and its name there. With `make`, missing folders are created.

    Raises OSError: FileNotFoundError if a parent folder is missing, NotADirectoryError or ELOOP if one is a
    file or a link now.
    """
    parent_path = Path(path).parent
    with make_folders(parent_path)[0] if make else open_folder(parent_path) as folder:
        yield folder, os.path.basename(path)  # noqa: PTH119


def open_regular(path: Path) -> int:
    """A descriptor to read the regular file at a resolved path. Raises NotRegular for anything else."""
    if not path.name:
        raise NotRegular(stat.S_IFDIR)
    with open_folder(path.parent) as folder:
        return folder.open_regular(path.name)


class NotRegular(OSError):
    """It is a folder, a pipe, a socket or a device, and was not opened."""

    def __init__(self, mode: int) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file")
        self.mode = mode


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegular(mode)


def _require_name(name: str) -> str:
    if not name or name in (".", "..") or "/" in name:
        raise ValueError(f"{name!r} is not the name of something in a folder")
    return name


def _descend(root: int, names: Sequence[str]) -> int:
    """Enters one folder after the other. One call of openat2 would save 7 us, and needs ctypes."""
    handle = os.dup(root)
    try:
        for name in names:
            inner = _open_subfolder(handle, name)
            os.close(handle)
            handle = inner
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_subfolder(handle: int, name: str) -> int:
    try:
        return os.open(name, _TRAVERSE_FLAGS | _NO_FOLLOW_FLAGS, dir_fd=handle)
    except NotADirectoryError:
        # Links give the same error: distinguish them for the message.
        if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
