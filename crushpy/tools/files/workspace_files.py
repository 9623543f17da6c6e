"""How tools read and write the content of files. A front end may replace it."""

import errno
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from crushpy.security.safe_open import Folder, make_folders, open_folder, remove_if_empty
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.files.locate import NamedPath
from crushpy.tools.files.text_file import read_regular, read_regular_in

State = Literal["unread", "unchanged", "changed"]


class FileMemory:
    """The content the model last saw of each file, by its resolved path, so that no edit is blind."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def remember(self, path: Path, content: bytes) -> None:
        """Records that the model knows the content of `path`."""
        self._seen[str(path)] = _hash(content)

    def state(self, path: Path, content: bytes) -> State:
        """Whether `content`, the current content of `path`, is what the model saw."""
        seen = self._seen.get(str(path))
        if seen is None:
            return "unread"
        return "unchanged" if seen == _hash(content) else "changed"


def _hash(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=16).hexdigest()


class WorkspaceFiles:
    """The files on disk. Methods are called in threads."""

    def read(self, place: NamedPath) -> bytes:
        """The content of a regular file. Raises OSError or ToolError."""
        return read_regular(place.real, place.shown)

    def write(self, place: NamedPath, content: bytes, before: bytes | None) -> str:
        """Replaces `before`, which the file must still contain, with `content`; None: there must be no file
        yet.

        Returns a note for the model, usually empty. Raises ToolError; the old content is intact then.
        """
        target, shown = place.real, place.shown
        created: list[Path] = []
        try:
            if before is None:
                folder, created = make_folders(target.parent)
                with folder:
                    _create(folder, target.name, shown, content)
                return ""
            with open_folder(target.parent) as folder:
                return _replace(folder, target.name, shown, content, before)
        except OSError as error:
            raise _write_error(error, shown, target) from error
        finally:
            # Remove folders that were created for a file that could not be written.
            remove_if_empty(created)


# --- replacing a file atomically: the path is resolved, and no link on the way is followed; mode, owner and
# extended attributes are kept


_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PERMISSION_ERRORS = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def _temporary(folder: Folder, content: bytes, mode: int) -> Generator[tuple[str, int]]:
    """The name and the descriptor of a new file, which is removed unless it was renamed."""
    name = f".crushpy-{os.urandom(6).hex()}.tmp"
    handle = folder.write_new(name, content, mode)
    try:
        yield name, handle
    finally:
        os.close(handle)
        folder.remove(name)


def _create(folder: Folder, name: str, shown: str, content: bytes) -> None:
    with _temporary(folder, content, 0o666) as (temporary, handle):
        try:
            folder.move(temporary, folder, name, replace=False)
        except FileExistsError as error:
            raise ToolError(f"{shown} was created meanwhile. View it first.") from error
        _require_written_file(folder, name, handle, shown)


def _replace(folder: Folder, name: str, shown: str, content: bytes, before: bytes) -> str:
    status = folder.status(name)
    if not status.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder.handle):
        raise ToolError(f"{shown} is read-only: it was not changed. Ask the user, or chmod it first.")
    with _temporary(folder, content, 0o600) as (temporary, handle):
        _copy_metadata(folder, name, handle, status)
        if read_regular_in(folder, name, shown) != before:
            raise ToolError(f"{shown} was changed by another program just now. View it again first.")
        folder.move(temporary, folder, name, replace=True)
        _require_written_file(folder, name, handle, shown)
    return f"{status.st_nlink - 1} other hard links to it keep the old content" if status.st_nlink > 1 else ""


def _require_written_file(folder: Folder, name: str, handle: int, shown: str) -> None:
    """Checks that the name still refers to the file that was written."""
    try:
        found = folder.status(name)
    except FileNotFoundError:
        return  # removed since, which is allowed
    ours = os.fstat(handle)
    if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
        raise ToolError(f"{shown} was replaced by another program while it was written. View it again first.")


def _copy_metadata(folder: Folder, name: str, handle: int, status: os.stat_result) -> None:
    """Gives the new file the owner, attributes and mode of the one it will replace."""
    own = os.fstat(handle)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(handle, status.st_uid, status.st_gid)
        except OSError:
            with suppress(OSError):  # only root can change the owner; the group can be kept by its members
                os.fchown(handle, -1, status.st_gid)
    _copy_attributes(folder, name, handle)
    os.fchmod(handle, stat.S_IMODE(status.st_mode))


def _copy_attributes(folder: Folder, name: str, handle: int) -> None:
    """Copies ACLs, labels and other extended attributes, as far as the system allows."""
    if sys.platform != "linux":
        return
    with suppress(OSError), os.fdopen(folder.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
        for attribute in os.listxattr(source.fileno()):
            with suppress(OSError):
                os.setxattr(handle, attribute, os.getxattr(source.fileno(), attribute))


def _write_error(error: OSError, shown: str, target: Path) -> ToolError:
    """Why a file could not be written, and what to do."""
    if error.errno in _DISK_FULL_ERRORS:
        why = "there is no space left for it. Free some space first"
    elif error.errno in _PERMISSION_ERRORS:
        why = f"no permission to write in {target.parent} ({reason(error)}). Ask the user"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        why = "a part of its path is a file, not a folder"
    elif error.errno == errno.ENOENT:
        why = "it no longer exists. Use write to create it again"
    else:
        why = reason(error)
    return ToolError(f"{shown} was not written: {why}. Its content is unchanged.")
