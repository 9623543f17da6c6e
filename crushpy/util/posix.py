"""Locks of files and entries of the user database. Only this module imports `fcntl` and `pwd`."""

import errno
import os
from functools import cache

try:
    import fcntl
    import pwd
except ImportError:  # Windows: `import crushpy` and `crushpy doctor` work there
    fcntl = pwd = None


def lock_file(handle: int, *, wait: bool = True) -> None:
    """Locks an open file until it is closed. Raises BlockingIOError if another process holds the lock and
    `wait` is False, and another OSError if the file system has no locks."""
    if fcntl is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@cache
def user_name(number: int) -> str:
    """Return the login name for a user id; the environment is not consulted."""
    try:
        return pwd.getpwuid(number).pw_name if pwd else f"user {number}"
    except KeyError:  # in a container the id may have no name
        return f"user {number}"


def login_name() -> str:
    """Return the login name of the process's user."""
    return user_name(os.getuid())


def registered_home() -> str:
    """Return the home folder of the process's user, without consulting the environment; empty if unknown."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir if pwd else ""
    except KeyError:
        return ""
