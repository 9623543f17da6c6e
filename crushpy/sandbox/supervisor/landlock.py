"""Takes from this process, and all that it starts, what it was not given (Landlock, seccomp).

Nothing here can be undone. Above it stays a process that commands cannot signal: it ends what they leave.
"""

import ctypes
import os
import signal
import socket
import stat

from crushpy.sandbox.supervisor.processes import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, kill_all_below_us
from crushpy.sandbox.supervisor.socket_filter import filter_sockets

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
FIRST_THAT_HOLDS = 3
"""Before it (Linux 6.2) any file could be emptied."""
_FIRST_WITH_DEVICES, _FIRST_WITH_SCOPES = 5, 6
_ABSTRACT_SOCKETS_AND_SIGNALS = 3

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEVICE = 1, 2, 4, 8, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDS = 38, 24
_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522

_library = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """What the kernel knows of it; below 1: nothing."""
    return _library.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)


def enter(rules: int, link: socket.socket, *, network: bool) -> None:
    """Returns in a child process that is held by the rules in the file `rules`: `read PATH`, `write PATH`."""
    with open(rules, "rb") as file:
        wanted = [word.split(b" ", 1) for word in file.read().split(b"\0") if word]
    _library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    above = os.getpid()
    child = os.fork()
    if child:
        link.close()
        _stay_above(child)
    hold([(kind.decode(), path) for kind, path in wanted], network=network)
    _library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != above:
        os._exit(1)


def _stay_above(child: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.waitpid(-1, 0)[0] != child:
        pass
    kill_all_below_us()
    os._exit(0)


def hold(rules: list[tuple[str, bytes]], *, network: bool) -> None:
    """Raises OSError where the kernel refuses: then nobody may run anything here."""
    for number in range(_CAPABILITIES):
        _library.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0)
    _check(_library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _restrict(rules)
    filter_sockets(_library, network=network)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _check(_library.capset(header, (ctypes.c_uint32 * 6)()))


def _restrict(rules: list[tuple[str, bytes]]) -> None:
    version = landlock_version()
    handled = _ALL | (_IOCTL_DEVICE if version >= _FIRST_WITH_DEVICES else 0)
    scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= _FIRST_WITH_SCOPES else 0
    attributes = (ctypes.c_uint64 * 3)(handled, 0, scopes)
    size = ctypes.sizeof(attributes) if scopes else 8
    ruleset = _check(_library.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0))
    for kind, path in rules:
        try:
            place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone meanwhile: what is not given is refused
        mode = os.fstat(place).st_mode
        rights = handled if kind == "write" else _READ
        if not stat.S_ISDIR(mode):
            rights &= _OF_FILES
        rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")
        if not stat.S_ISLNK(mode):
            _check(_library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(place)
    _check(_library.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
