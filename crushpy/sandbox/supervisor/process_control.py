"""Listing, signalling and reaping processes. Negative numbers are process groups."""

import os
import time
from collections.abc import Iterable, Mapping

TYPE_CHECKING = False  # importing `typing` would take longer than all of this
if TYPE_CHECKING:
    import signal
    import socket
else:
    # The first command waits for the supervisor: `signal` and `socket`, which import `enum` and more, would
    # be a third of its start.
    import _signal as signal
    import _socket as socket

__all__ = ["signal", "socket"]  # for the supervisor's other modules

HAS_PROC = os.path.exists("/proc/self/stat")  # noqa: PTH110 - pathlib takes long to import
KILL_ROUNDS = 400
KILL_PAUSE_S = 0.005
_STOP_ROUNDS = 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


def process_control(option: int, value: int) -> None:
    """Calls prctl on Linux; does nothing elsewhere."""
    from crushpy.sandbox.supervisor.system_calls import library  # the supervisor's children inherit it

    if prctl := getattr(library, "prctl", None):
        prctl(option, value, 0, 0, 0)


def list_parents() -> dict[int, int]:
    """The parent of each process by pid, without zombies."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if HAS_PROC else ():  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The program's name is in parentheses and may itself contain parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
            parents[int(name)] = int(fields[1])
    return parents


def descendants(roots: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    """All descendants of `roots`, without `roots`."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it ended, or belongs to another user


def kill_tree(root: int) -> None:
    """Kills all descendants of `root`. They are stopped first, so that none can fork meanwhile."""
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        running = descendants([root], list_parents()) - stopped
        if not running:
            break
        send(running, signal.SIGSTOP)
        stopped |= running
    send(stopped, signal.SIGKILL)


def kill_namespace() -> None:
    """Kills every other process at once if we are the first of a pid namespace. Forking cannot outrun it."""
    if os.getpid() == 1:
        send([-1], signal.SIGKILL)


def kill_descendants() -> None:
    for _ in range(KILL_ROUNDS):
        if not descendants([os.getpid()], list_parents()):
            break
        kill_tree(os.getpid())
        reap_children()
        time.sleep(KILL_PAUSE_S)


def reap_children() -> dict[int, int]:
    """The wait status of each child that has ended, by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def own_memory(pid: int) -> int:
    """Resident bytes that are not shared with other processes."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
