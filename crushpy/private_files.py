"""Replaces a file whole or not at all: what crushpy keeps for its user, readable by its owner only."""

import os
from pathlib import Path

from crushpy.paths import private_dir


def write_private(path: Path, content: bytes) -> None:
    """Puts `content` in `path` in one step, and makes its folder; a symlink (dotfiles) stays one.

    Raises OSError, and then what was there is intact.
    """
    target = Path(os.path.realpath(path))
    private_dir(target.parent)
    temporary = write_beside(target, content, 0o600)
    try:
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_beside(target: Path, content: bytes, mode: int) -> Path:
    """A file of another name in the same folder, safely on disk: ready to take the place of `target`."""
    temporary = target.parent / f".crushpy-{os.urandom(6).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
