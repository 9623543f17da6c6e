"""Writes a file whole or not at all: new content takes the place of the old in one step.

Links are followed to the file they stand for; mode, owner and extended attributes stay as they were.
"""

import errno
import os
import stat
from pathlib import Path

from crushpy.private_files import write_beside
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import reason
from crushpy.tools.files.text_file import read_regular

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""What file systems without hard links answer."""


def write_file(path: Path, shown: str, content: bytes, before: bytes | None) -> str:
    """Puts `content` in place of `before`, which `path` must still hold; None: there must be no file yet.

    Gives a note for the model, mostly empty. Raises ToolError, and then the old content is intact.
    """
    target = Path(os.path.realpath(path))
    made: list[Path] = []
    try:
        if before is None:
            made = _make_folders(target.parent)
            _create(target, shown, content)
            return ""
        return _replace(target, shown, content, before)
    except OSError as error:
        raise _refusal(error, shown, target) from error
    finally:
        # Folders that were made for a file that could not be written are empty, and go.
        for folder in made:
            _remove_if_empty(folder)


def _create(target: Path, shown: str, content: bytes) -> None:
    temporary = write_beside(target, content, 0o666)
    try:
        try:
            # Unlike a rename, this fails where another file has come into being meanwhile.
            target.hardlink_to(temporary)
        except FileExistsError as error:
            raise ToolError(f"{shown} came into being meanwhile. View it first.") from error
        except OSError as error:
            if error.errno not in _NO_LINKS or os.path.lexists(target):
                raise
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(target: Path, shown: str, content: bytes, before: bytes) -> str:
    status = target.stat()
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise ToolError(f"{shown} is read-only: it was not changed. Ask the user, or chmod it first.")
    temporary = write_beside(target, content, 0o600)
    try:
        _take_over(target, temporary, status)
        if read_regular(target, shown) != before:
            raise ToolError(f"{shown} was changed by someone else just now. View it again first.")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if status.st_nlink > 1:
        return f"{status.st_nlink - 1} other hard links to it keep the old content"
    return ""


def _take_over(source: Path, temporary: Path, status: os.stat_result) -> None:
    """Gives `temporary` the owner, attributes and mode of the file it will replace."""
    own = temporary.stat()
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        _try_chown(temporary, status.st_uid, status.st_gid)
    _copy_attributes(source, temporary)
    temporary.chmod(stat.S_IMODE(status.st_mode))


def _try_chown(path: Path, user: int, group: int) -> None:
    try:
        os.chown(path, user, group)
    except OSError:
        # Only root gives files away; a group one belongs to can still be kept.
        try:
            os.chown(path, -1, group)
        except OSError:
            pass


def _copy_attributes(source: Path, temporary: Path) -> None:
    """Access lists, labels and the like, where the system has them and lets us."""
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:
        return
    for name in names:
        try:
            os.setxattr(temporary, name, os.getxattr(source, name))
        except OSError:
            continue


def _make_folders(folder: Path) -> list[Path]:
    """Makes `folder` and what it needs; the new ones, innermost first."""
    missing: list[Path] = []
    at = folder
    while not os.path.lexists(at):
        missing.append(at)
        at = at.parent
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass


def _refusal(error: OSError, shown: str, target: Path) -> ToolError:
    """Why a file could not be written, and the way out."""
    if error.errno in _FULL:
        why = "there is no space left for it. Free some space first"
    elif error.errno in _DENIED:
        why = f"no right to write in {target.parent} ({reason(error)}). Ask the user"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        why = "a part of its path is a file, not a folder"
    elif error.errno == errno.ELOOP:
        why = "its links lead in a circle"
    elif error.errno == errno.ENOENT:
        why = "it is gone. Use write to make it again"
    else:
        why = reason(error)
    return ToolError(f"{shown} was not written: {why}. What was there is unchanged.")
