"""Restricts this process and its children with Landlock and seccomp. Nothing here can be undone."""

import ctypes
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable

from crushpy.sandbox.supervisor import process_control as control
from crushpy.sandbox.supervisor.system_calls import (
    NETWORK_FAMILIES,
    check_result,
    filter_system_calls,
    filters_system_calls,
    library,
)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _PATH_BENEATH = 1, 1
MIN_VERSION = 3
"""Older versions (before Linux 6.2) cannot prevent truncating files."""
_FIRST_WITH_DEVICES, _FIRST_WITH_SCOPES = 5, 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SOCKETS_AND_SIGNALS = 1, 3

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEVICE = 1, 2, 4, 8, 1 << 14, 1 << 15
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_ALL_RIGHTS = (1 << 15) - 1
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDS = 38, 24
_SEIZE = 0x4206
"""The ptrace request that does not stop the traced process."""
_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522


def missing_protections() -> list[str] | None:
    """Restricts this process completely, then tries what must fail. None if the kernel cannot restrict it."""
    if landlock_version() < MIN_VERSION or not filters_system_calls():
        return None
    parent = os.getppid()
    attempts: dict[str, Callable[[], object]] = {
        "network": lambda: socket.socket(socket.AF_INET),
        "unix sockets": lambda: socket.socket(socket.AF_UNIX),
        "writes outside": lambda: os.open(os.devnull, os.O_WRONLY),
        "secrets": lambda: os.open("/proc/self/stat", os.O_RDONLY),
        "signals": lambda: os.kill(parent, 0),
        "ptrace": lambda: check_result(library.ptrace(_SEIZE, parent, None, None)),
    }
    restrict_process([], network=False)
    return [name for name, attempt in attempts.items() if not _is_refused(attempt)]


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def landlock_version() -> int:
    """The Landlock version of the kernel; below 1 if it has none."""
    return library.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)


def enter_landlock(rules: int, link: socket.socket, *, network: bool) -> None:
    """Returns in a child process restricted by the rules in the file `rules`: `read PATH`, `write PATH`.

    The parent stays outside: commands cannot signal it, and it ends what they leave behind.
    """
    with open(rules, "rb") as file:
        entries = [word.split(b" ", 1) for word in file.read().split(b"\0") if word]
    library.prctl(control.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    child = os.fork()
    if child:
        link.close()
        _wait_for_child(child)
    restrict_process([(kind.decode(), path) for kind, path in entries], network=network)
    library.prctl(control.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _wait_for_child(child: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.waitpid(-1, 0)[0] != child:
        pass
    control.kill_descendants()
    os._exit(0)


def restrict_process(rules: list[tuple[str, bytes]], *, network: bool) -> None:
    """Restricts this process. Raises OSError if the kernel refuses; nothing may run then."""
    for number in range(_CAPABILITIES):
        library.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0)
    check_result(library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _apply_ruleset(rules)
    filter_system_calls(NETWORK_FAMILIES if network else (), datagram_pairs=False)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    check_result(library.capset(header, (ctypes.c_uint32 * 6)()))


def _apply_ruleset(rules: list[tuple[str, bytes]]) -> None:
    assert sys.platform == "linux"
    version = landlock_version()
    handled = _ALL_RIGHTS | (_IOCTL_DEVICE if version >= _FIRST_WITH_DEVICES else 0)
    scopes = _SCOPE_SOCKETS_AND_SIGNALS if version >= _FIRST_WITH_SCOPES else 0
    attributes = (ctypes.c_uint64 * 3)(handled, 0, scopes)
    size = ctypes.sizeof(attributes) if scopes else 8
    ruleset = check_result(library.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0))
    for kind, path in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # deleted meanwhile: what is not granted is refused
        mode = os.fstat(handle).st_mode
        rights = handled if kind == "write" else _READ_RIGHTS
        if not stat.S_ISDIR(mode):
            rights &= _FILE_RIGHTS
        rule = rights.to_bytes(8, "little") + handle.to_bytes(4, "little")
        if not stat.S_ISLNK(mode):
            check_result(library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(handle)
    check_result(library.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def isolate_abstract_sockets() -> None:
    """Cuts this process and its children off from the host's abstract sockets, if the kernel can (6.12)."""
    if landlock_version() >= _FIRST_WITH_SCOPES:
        attributes = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_SOCKETS)
        ruleset = library.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
        if ruleset >= 0:
            library.syscall(_RESTRICT_SELF, ruleset, 0)
            os.close(ruleset)
