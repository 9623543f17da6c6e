"""A TCP proxy on loopback that can be cut: at once, or right after a certain word went through."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Proxy:
    def __init__(self, port: int) -> None:
        """In front of `port`."""
        self._target = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._fatal = b""
        self._awaited, self._left, self._do = b"", 0, _nothing
        self._times = 1
        self._stay = False
        self.cuts = 0
        """How often a fatal word was seen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection; new ones are refused until `mend`."""
        self._open = False
        with self._lock:
            for pair in self._pairs:
                for end in pair:
                    _end(end)
            self._pairs.clear()

    def mend(self) -> None:
        self._open = True

    def when(self, word: bytes, count: int, do: Callable[[], object]) -> None:
        """Calls `do`, before it is passed on, when `word` comes for the `count`th time."""
        self._awaited, self._left, self._do = word, count, do

    def cut_after(self, word: bytes, times: int = 1, *, stay: bool = False) -> None:
        """The next connection that sends `word` is cut when the server's answer comes: its work is done.

        So many `times`, one after the other; or new ones are refused from then on (`stay`) until `mend`.
        """
        self._times, self._stay = times, stay
        self._fatal = word

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._open:
                _end(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _end(client)
                continue
            with self._lock:
                self._pairs.append((client, server))
            doomed = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, doomed), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._awaited and self._awaited in data:
                    self._left -= 1
                    if not self._left:
                        self._do()
                if self._fatal and self._fatal in data:
                    self.cuts += 1
                    self._times -= 1
                    if not self._times:
                        self._fatal = b""
                    if self._stay:
                        self._open = False
                    doomed.set()
                server.sendall(data)
        _end(server)

    def _answers(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if doomed.is_set():
                    break
                client.sendall(data)
        _end(client)
        _end(server)


def _nothing() -> None:
    pass


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
