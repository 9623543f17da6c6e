"""Hands connections to a loopback port inside the sandbox over to a socket of the proxy outside it."""

import os
import socket
from threading import Thread


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
            client, _ = listener.accept()
            Thread(target=_serve, args=(client, path), daemon=True).start()
    finally:
        os._exit(1)


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outside:
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
