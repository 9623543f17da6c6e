"""A stand-in for Ollama, in its own protocol as documented: tags, show, ps and chats as JSON lines."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Line = dict[str, Any]


class OllamaServer:
    """Has one model, `qwen3:latest`. Each request for a chat takes the next reply."""

    def __init__(self) -> None:
        self.version = "0.12.6"
        self.limit = 40_960
        self.parameters = ""
        self.capabilities: list[str] | None = ["completion", "tools"]
        self.loaded: int | None = None
        """The window of the loaded model; None: it is not loaded."""
        self.replies: list[list[Line] | tuple[int, str]] = []
        self.chats: list[dict[str, Any]] = []
        self.paths: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner.paths.append(self.path)
                answers: dict[str, Any] = {
                    "/api/version": {"version": owner.version},
                    "/api/tags": {"models": [{"name": "qwen3:latest", "model": "qwen3:latest"}]},
                    "/api/ps": {"models": owner._running()},
                    "/v1/models": {"object": "list", "data": [{"id": "qwen3:latest", "owned_by": "library"}]},
                }
                self._send(*((200, answers[self.path]) if self.path in answers else (404, {})))

            def do_POST(self) -> None:
                owner.paths.append(self.path)
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if body["model"].removesuffix(":latest") != "qwen3":
                    self._send(404, {"error": f"model '{body['model']}' not found"})
                elif self.path == "/api/show":
                    self._send(200, owner._shown())
                elif self.path == "/api/chat":
                    owner.chats.append(body)
                    self._chat(body, owner.replies.pop(0))
                else:
                    self._send(404, {"error": "not here"})

            def _chat(self, body: dict[str, Any], reply: list[Line] | tuple[int, str]) -> None:
                if body.get("tools") and "tools" not in (owner.capabilities or ["tools"]):
                    reply = (400, "registry.ollama.ai/library/qwen3:latest does not support tools")
                if isinstance(reply, tuple):
                    self._send(reply[0], {"error": reply[1]})
                    return
                self.send_response(200)
                self.send_header("content-type", "application/x-ndjson")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for line in reply:
                    data = (
                        json.dumps({"model": body["model"], "created_at": "2026-01-01", **line}).encode()
                        + b"\n"
                    )
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def _send(self, status: int, answer: object) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json; charset=utf-8")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        return {"OLLAMA_HOST": self.url.removeprefix("http://")}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _running(self) -> list[Line]:
        return [{"name": "qwen3:latest", "context_length": self.loaded}] if self.loaded else []

    def _shown(self) -> Line:
        shown: Line = {
            "parameters": self.parameters,
            "details": {"family": "qwen3"},
            "model_info": {"general.architecture": "qwen3", "qwen3.context_length": self.limit},
        }
        return shown if self.capabilities is None else {**shown, "capabilities": self.capabilities}


def text_reply(*texts: str) -> list[Line]:
    lines: list[Line] = [{"message": {"role": "assistant", "content": text}, "done": False} for text in texts]
    counts = {"prompt_eval_count": 1_200, "eval_count": 34}
    return [
        *lines,
        {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts},
    ]


def call_reply(*calls: tuple[str, dict[str, Any]]) -> list[Line]:
    functions = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    message = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": functions}
    return [{"message": message, "done": False}, *text_reply()]


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    server = OllamaServer()
    yield server
    server.close()
