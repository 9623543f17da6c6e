"""Forwards connections to a loopback port inside the sandbox to the socket of the proxy outside it.

All commands of a conversation share the loopback, but only those of this supervisor may reach its hosts:
connections of other processes are closed.
"""

import os
import socket
from threading import Thread

_LOCAL, _INODE = 1, 9
"""Columns of /proc/net/tcp."""


def _client_inode(port: int, listening: int) -> str:
    """Of the client's socket at `port`, connected to our port `listening`."""
    ends = (f":{port:04X}", f":{listening:04X}")
    with open("/proc/self/net/tcp") as table:
        for line in table:
            words = line.split()
            if len(words) > _INODE and words[_LOCAL].endswith(ends[0]) and words[2].endswith(ends[1]):
                return words[_INODE]
    return ""


def _is_open_here(name: str) -> bool:
    """Whether a process of this pid namespace has it open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with os.scandir(f"/proc/{pid}/fd") as handles:
                if any(_link_target(handle.path) == name for handle in handles):
                    return True
        except OSError:
            continue  # it ended, or belongs to another user
    return False


def _link_target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""


def forward_connections(listening: int, port: int, path: str) -> None:
    """Forwards the connections to a listening socket, as long as this process lives."""
    listener = socket.socket(fileno=listening)
    while True:
        client, (_, client_port) = listener.accept()
        Thread(target=_forward, args=(client, client_port, port, path), daemon=True).start()


def _forward(client: socket.socket, client_port: int, port: int, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outside:
        inode = _client_inode(client_port, port)
        if not inode or not _is_open_here(f"socket:[{inode}]"):
            return
        try:
            outside.connect(path)
        except OSError:
            return
        reply_thread = Thread(target=_copy, args=(outside, client), daemon=True)
        reply_thread.start()
        _copy(client, outside)
        reply_thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    for end, how in ((source, socket.SHUT_RD), (target, socket.SHUT_WR)):
        try:
            end.shutdown(how)
        except OSError:
            pass
