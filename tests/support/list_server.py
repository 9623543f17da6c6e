"""A server that lists models as it is told to: any path, any answer; it notes what it was asked."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class ListServer:
    """`answers` maps a path with its query to a body, or to a status and a body; the rest is 404."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Path and headers, names in lower case."""
        self.silent = threading.Event()
        """Set it to let go of those that a test keeps waiting with the answer None."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                answer = owner.answers.get(self.path, (404, {"error": {"message": "nothing here"}}))
                if answer is None:
                    owner.silent.wait(60)
                    return
                status, body = answer if isinstance(answer, tuple) else (200, answer)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def close(self) -> None:
        self.silent.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def lister() -> Iterator[ListServer]:
    server = ListServer()
    yield server
    server.close()
