"""Hands connections to a loopback port inside the sandbox over to a socket of the proxy outside it.

The network is the conversation's, the hosts are those of this keeper's commands: others are not let through.
"""

import os
import socket
from threading import Thread

from crushpy.sandbox.supervisor.own_connections import comes_from_here


def start_forwarder(port: int, path: str, link: socket.socket) -> int:
    """A child process that does it from now on; its number."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    child = os.fork()
    if child:
        listener.close()
        return child
    link.close()  # the end of the keeper must show there
    try:
        while True:
            client, (_, client_port) = listener.accept()
            Thread(target=_serve, args=(client, client_port, port, path), daemon=True).start()
    finally:
        os._exit(1)


def _serve(client: socket.socket, client_port: int, port: int, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outside:
        if not comes_from_here(client_port, port):
            return
        try:
            outside.connect(path)
        except OSError:
            return
        answers = Thread(target=_copy, args=(outside, client), daemon=True)
        answers.start()
        _copy(client, outside)
        answers.join()


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
