"""Private files of the user: replaced atomically, by one process at a time."""

import errno
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from crushpy.core.paths import private_dir
from crushpy.util.posix import lock_file

T = TypeVar("T")
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""Errors of file systems without locks."""
POLL_INTERVAL_S = 0.01


def write_private(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replaces the content of `path` atomically and creates its folder; a symlink (dotfiles) stays one.

    `sync`: it must survive a crash of the machine, not only of this process. Raises OSError; the old content
    is intact then.
    """
    target = Path(os.path.realpath(path))
    private_dir(target.parent)
    with new_file(target, replace=True, sync=sync) as file:
        file.write(content)


def read_stored(path: Path, kind: type[T]) -> T | None:
    """What was written there as JSON; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def update_stored(path: Path, kind: type[T], change: Callable[[T], T], seconds: float = -1) -> None:
    """Replaces what is stored there by what `change` makes of it, while no other process does the same.

    Waits for the others as `locked`, and raises the same errors.
    """
    with locked(path.with_suffix(".lock"), seconds):
        write_private(path, msgspec.json.encode(change(read_stored(path, kind) or kind())))


@contextmanager
def new_file(path: Path, *, replace: bool, sync: bool = True) -> Generator[BinaryIO]:
    """A file that only its owner can read: written under a temporary name, and renamed when it is complete.

    Raises FileExistsError if anything, also a link, exists there and may not be replaced; OSError.
    """
    if not replace and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    temporary = path.parent / f".crushpy-{os.urandom(6).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(handle)
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, this fails if the target exists
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(file: Path, seconds: float = -1) -> Generator[None]:
    """Holds a lock between processes; the system releases it when a process dies. `file` is kept.

    Waits at most `seconds` (negative: forever), then raises TimeoutError. Raises OSError if `file`
    cannot be created.
    """
    private_dir(file.parent)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + seconds
    try:
        while not _try_lock(handle):
            if seconds >= 0 and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(file))
            time.sleep(POLL_INTERVAL_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        lock_file(handle, wait=False)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        # Continue without a lock rather than fail.
    return True
