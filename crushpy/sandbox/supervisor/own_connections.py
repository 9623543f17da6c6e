"""Whether a connection on loopback comes from a process of this pid namespace: others share the network."""

import os

_LOCAL, _INODE = 1, 9
"""Columns of /proc/net/tcp."""


def comes_from_here(port: int, listening: int) -> bool:
    """Whether the client at `port` that connected to our port `listening` is held by a process seen here."""
    inode = _client_inode(port, listening)
    return bool(inode) and _is_held(f"socket:[{inode}]")


def _client_inode(port: int, listening: int) -> str:
    ends = (f":{port:04X}", f":{listening:04X}")
    with open("/proc/self/net/tcp") as table:
        for line in table:
            words = line.split()
            if len(words) > _INODE and words[_LOCAL].endswith(ends[0]) and words[2].endswith(ends[1]):
                return words[_INODE]
    return ""


def _is_held(name: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with os.scandir(f"/proc/{pid}/fd") as handles:
                if any(_target(handle.path) == name for handle in handles):
                    return True
        except OSError:
            continue  # it is gone, or not ours to look at
    return False


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""
