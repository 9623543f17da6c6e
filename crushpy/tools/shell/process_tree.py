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
        alive = self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # one that was stopped must wake up to hear it
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
    """Every process by its number, without zombies."""
    everyone: dict[int, _Seen] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        # The program's name stands in brackets and may hold anything, brackets too.
        fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
        if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
            everyone[int(name)] = _Seen(int(fields[1]), int(fields[3]), int(fields[19]))
    return everyone


def _carries(pid: int, mark: bytes) -> bool:
    return mark in _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
