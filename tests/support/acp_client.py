"""A client of the Agent Client Protocol: the real `crushpy acp` in a process of its own."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command import start_crushpy

Json = dict[str, Any]
TYPED = {"compaction_update", "notice"}
"""Updates that the Python package does not know yet."""
RESULTS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/prompt": "PromptResponse",
    "session/list": "ListSessionsResponse",
    "session/fork": "ForkSessionResponse",
}
FILE_REQUESTS = {
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
}


def validate(kind: str, message: Json) -> None:
    from acp import schema  # a second of imports

    getattr(schema, kind).model_validate(message)


class AcpClient:
    """Checks every message it receives against the protocol's types."""

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        self.process = start_crushpy(
            "acp",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
        )
        self.updates: list[Json] = []
        self.questions: list[Json] = []
        self.decide: Callable[[Json], str | None] = lambda question: question["options"][0]["optionId"]
        """Chooses an option; None leaves the question open."""
        self.files: list[tuple[str, str]] = []
        """Requests about files."""
        self.serve: Callable[[str, Json], Json | None] = lambda _method, _params: None
        """Answers a request about a file; None leaves it open."""
        self._count = 0
        self._methods: dict[int, str] = {}
        self._answers: dict[Any, Json] = {}

    def send(self, message: Json | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def start(self, method: str, **params: Any) -> int:
        self._count += 1
        self._methods[self._count] = method
        self.send({"id": self._count, "method": method, "params": params})
        return self._count

    def call(self, method: str, **params: Any) -> Json:
        answer = self.wait(self.start(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def fail(self, method: str, **params: Any) -> Json:
        return self.wait(self.start(method, **params))["error"]

    def wait(self, number: int | None) -> Json:
        """Reads until this request is answered."""
        while number not in self._answers:
            self.read()
        return self._answers.pop(number)

    def until_question(self) -> Json:
        seen = len(self.questions)
        while len(self.questions) == seen:
            self.read()
        return self.questions[-1]

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the agent has ended"
        message: Json = json.loads(line)
        method = message.get("method")
        if method == "session/update":
            update = message["params"]["update"]
            if update["sessionUpdate"] not in TYPED:
                validate("SessionNotification", message["params"])
            self.updates.append(update)
        elif method == "session/request_permission":
            validate("RequestPermissionRequest", message["params"])
            self.questions.append(message["params"])
            chosen = self.decide(message["params"])
            if chosen is not None:
                outcome = {"outcome": "selected", "optionId": chosen}
                self.send({"id": message["id"], "result": {"outcome": outcome}})
        elif method in FILE_REQUESTS:
            validate(FILE_REQUESTS[method], message["params"])
            self.files.append((method, message["params"]["path"]))
            answer = self.serve(method, message["params"])
            if answer is not None:
                self.send({"id": message["id"], **answer})
        elif method is None:
            number = message["id"]
            if "result" in message and (kind := RESULTS.get(self._methods.get(number, ""))) is not None:
                validate(kind, message["result"])
            self._answers[number] = message
        return message

    def of(self, kind: str) -> list[Json]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    @property
    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.of("agent_message_chunk"))

    def open(self, cwd: Path, **capabilities: Any) -> str:
        self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
        return self.call("session/new", cwd=str(cwd), mcpServers=[])["sessionId"]

    def prompt(self, session: str, text: str) -> str:
        blocks = [{"type": "text", "text": text}]
        return self.call("session/prompt", sessionId=session, prompt=blocks)["stopReason"]

    def close(self) -> tuple[int, str]:
        """Closes stdin and waits; the exit code and what was printed to stderr."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        return code, self.process.stderr.read().decode()


Connect = Callable[[], AcpClient]


@pytest.fixture
def connect(llm_env: dict[str, str], workspace: Path) -> Iterator[Connect]:
    clients: list[AcpClient] = []

    def make() -> AcpClient:
        clients.append(AcpClient(llm_env, workspace))
        return clients[-1]

    yield make
    for client in clients:
        client.process.kill()
        client.process.wait()
        for pipe in (client.process.stdin, client.process.stdout, client.process.stderr):
            if pipe is not None:
                pipe.close()
