"""Finds and ends everything that a command started, also what left its process group.

Each command carries a mark in its environment that its children inherit. On Linux its family is every
process that carries the mark, lives in the command's session, or descends from one that does; elsewhere
it is the process group.
"""

import asyncio
import os
import signal
import time
from typing import NamedTuple

MARK_VARIABLE = "_CRUSHPY_JOB"
_KILL_ROUNDS = 50
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1
_EXEC_PAUSES = (0.0, *[0.001] * 50)
"""How often, and in which steps, a process that is just becoming another program is looked at again."""
_KERNEL_THREAD = 0x0020_0000


class _Seen(NamedTuple):
    parent: int
    session: int
    start: int
    """When it started: a number alone may belong to another process by now."""


class Family:
    """All processes of one command; `leader` is its shell, which opened a session of its own."""

    def __init__(self, mark: str, leader: int | None = None) -> None:
        self.mark = mark.encode()
        self.leader = leader
        self.leader_reaped = False
        """True once the leader's number may be given to a stranger."""
        self._known: dict[int, int] = {}
        """Number and start of the members seen last: they stay members when their parent dies."""

    def members(self) -> list[int]:
        """Who is alive. A negative number stands for a whole process group (where there is no /proc)."""
        if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 - on the way of every command's end
            return self._group()
        everyone = _everyone()
        found = {
            pid
            for pid, seen in everyone.items()
            if self._known.get(pid) == seen.start
            or (seen.session == self.leader and not (self.leader_reaped and self.leader in everyone))
            or _carries(pid, self.mark)
        }
        while more := {pid for pid, seen in everyone.items() if seen.parent in found} - found:
            found |= more
        found.discard(os.getpid())
        self._known = {pid: everyone[pid].start for pid in found}
        return sorted(found)

    def signal(self, number: signal.Signals) -> list[int]:
        """Sends a signal to all of them, and says who they were."""
        everyone = self.members()  # before the first one dies: its orphans must be known by then
        if self.leader is not None and not self.leader_reaped:
            _send(-self.leader, number)  # the group at once, so that it cannot outgrow us
        for pid in everyone:
            _send(pid, number)
        return everyone

    async def end(self, grace: float) -> list[int]:
        """Asks them to end, kills who has not after `grace` seconds, and says who lives even then."""
        asked = self.signal(signal.SIGTERM)
        alive = self.signal(signal.SIGCONT)  # one that was stopped must wake up to hear it
        for pid in set(alive).difference(asked):
            _send(pid, signal.SIGTERM)  # started while we looked: a listing of processes is no snapshot
        deadline = time.monotonic() + grace
        pause = _FIRST_PAUSE
        while alive and time.monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            alive = self.members()
        for _ in range(_KILL_ROUNDS):
            # More than once: a member may have started another between the look and the signal.
            if not alive:
                break
            self.signal(signal.SIGKILL)
            await asyncio.sleep(_FIRST_PAUSE)
            alive = self.members()
        return alive

    def _group(self) -> list[int]:
        if self.leader is None:
            return []
        try:
            os.killpg(self.leader, 0)
        except OSError:
            return []
        return [-self.leader]


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone meanwhile, or another user's


def _everyone() -> dict[int, _Seen]:
    """Every process by its number, without zombies and the kernel's own."""
    everyone: dict[int, _Seen] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        fields = _stat(name)
        if _lives(fields) and not int(fields[6]) & _KERNEL_THREAD:
            everyone[int(name)] = _Seen(int(fields[1]), int(fields[3]), int(fields[19]))
    return everyone


def _lives(fields: list[bytes]) -> bool:
    return len(fields) > 19 and fields[0] not in (b"Z", b"X")


def _carries(pid: int, mark: bytes) -> bool:
    """Whether the mark is in its environment. While a process becomes another program (exec), that and its
    arguments read as empty: it is looked at again then, or it would be taken for a stranger and live on."""
    for pause in _EXEC_PAUSES:
        time.sleep(pause)
        if environment := _read(f"/proc/{pid}/environ"):
            return mark in environment
        if _read(f"/proc/{pid}/cmdline"):
            return mark in _read(f"/proc/{pid}/environ")
        if not _lives(_stat(pid)):
            break
    return False


def _stat(pid: int | str) -> list[bytes]:
    """What the system says about a process, from its state on."""
    # The program's name stands in brackets and may hold anything, brackets too.
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
