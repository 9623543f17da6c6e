"""Keeps crushpy's own folders to their user."""

import os
import stat

from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths


def guard_home(paths: Paths) -> list[str]:
    """Closes crushpy's own folders to others; says what was done. Raises UsageError for another's folder."""
    notices: list[str] = []
    if os.name != "posix":
        return notices
    for folder in dict.fromkeys((paths.config_dir, paths.data_dir)):
        try:
            found = folder.stat()
        except OSError:
            continue  # not there yet, or told by whoever opens it
        if found.st_uid != os.geteuid():
            raise UsageError(
                f"{folder} belongs to {_owner(found.st_uid)}, not to you ({_owner(os.geteuid())}).",
                "Conversations and settings are private. Set CRUSHPY_HOME to a folder of your own, "
                "or give this one back with chown.",
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o077:
            try:
                folder.chmod(0o700)
                notices.append(f"{folder} was open to other users; now it is yours alone.")
            except OSError as error:
                notices.append(f"{folder} is open to other users, and cannot be closed: {error.strerror}.")
    return notices


def _owner(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
