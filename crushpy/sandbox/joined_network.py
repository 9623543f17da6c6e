"""Starts a sandbox in the network namespace of another, so that both reach the same servers on loopback."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_PROGRAM = """
import ctypes, fcntl, os, sys, time
pid, command = sys.argv[1], sys.argv[2:]
call = ctypes.CDLL(None, use_errno=True)
for _ in range(1000):
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    if children:
        break
    time.sleep(0.005)
network = os.open(f"/proc/{children[0]}/ns/net", os.O_RDONLY)
owner = fcntl.ioctl(network, 0xB701)
for namespace, kind in ((owner, 0x10000000), (network, 0x40000000)):
    if call.setns(namespace, kind):
        sys.exit(f"the network could not be joined: {os.strerror(ctypes.get_errno())}")
os.closerange(owner, owner + 1)
os.execv(command[0], command)
"""
"""The other may be only just beginning. The network belongs to a user namespace, which is entered first: only
there may one enter the network."""


@cache
def joins_networks() -> bool:
    return sys.platform.startswith("linux") and Path("/proc/self/task").exists()


def join_network(pid: int, command: Sequence[str]) -> list[str]:
    """What starts `command` in the network of the sandbox that process `pid` made."""
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(pid), *command]
