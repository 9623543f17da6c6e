"""`crushpy run` for tests: the real command in a process of its own, against the scripted model server."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM

from support.command import Cli, start_crushpy

MODEL = "openai/test-model"
STREAM = ("--format", "stream-json")
PATIENCE = 60.0


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be noticed does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for `condition`, and fails with `what` where it does not come true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)


class Done:
    """A run that has ended."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr

    def __repr__(self) -> str:
        return f"<exit code {self.code}: {self.stderr[-2_000:] or self.stdout[-2_000:]}>"

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What stream-json printed. Fails on a line that is no object, or has not its type first."""
        for line in self.stdout.splitlines():
            assert line.startswith('{"type":"'), line
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        """The result line, which must be the last and tell the exit code."""
        last = self.lines[-1]
        assert last["type"] == "result"
        assert last["exit_code"] == self.code, (last, self.code, self.stderr)
        assert sum(line["type"] == "result" for line in self.lines) == 1
        return last

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]


class Live:
    """A run that is still going on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._lines: list[str] = []
        self._over = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def until(self, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Returns once what it has printed so far meets `condition`."""

        def met() -> bool:
            return condition([json.loads(line) for line in self._lines])

        with self._more:
            self._more.wait_for(lambda: met() or self._over, timeout=PATIENCE)
        if not met():
            self.process.kill()
            pytest.fail(f"it only printed {self._lines}, and to stderr: {self.end().stderr}")

    def until_type(self, kind: str) -> None:
        self.until(lambda lines: any(line["type"] == kind for line in lines))

    @property
    def session(self) -> str:
        """The id of its first session, once it has told it."""
        self.until_type("session")
        return json.loads(self._lines[0])["id"]

    def end(self) -> Done:
        """Waits for its end. A last line that was cut off by a kill is left out."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        whole = "".join(line for line in self._lines if line.endswith("\n"))
        return Done(code, whole, self.process.stderr.read())


Run = Callable[..., Done]
Start = Callable[..., Live]
InShell = Callable[..., Done]


@pytest.fixture
def llm_env(llm: ScriptedLLM) -> dict[str, str]:
    """What makes `crushpy run` talk to the scripted server, and retry without waiting."""
    return {**llm.env, "CRUSHPY_MODEL": MODEL, "CRUSHPY_RETRY_BASE": "0.001"}


@pytest.fixture
def run(cli: Cli, llm_env: dict[str, str]) -> Run:
    """`run("--yolo", "prompt")` runs it to its end; with stream-json unless a format is given."""

    def run_it(*args: str, env: dict[str, str] | None = None, **more: Any) -> Done:
        form = () if "--format" in args else STREAM
        done = cli("run", *form, *args, env={**llm_env, **(env or {})}, **more)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run_it


@pytest.fixture
def in_shell(workspace: Path, llm_env: dict[str, str]) -> InShell:
    """`in_shell("$CRUSHPY run hi > file")` runs a shell command in which $CRUSHPY is the program."""

    def run_it(command: str, cwd: Path | None = None) -> Done:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=cwd or workspace,
            env={**os.environ, **llm_env, "CRUSHPY": f"{sys.executable} -m crushpy"},
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run_it


@pytest.fixture
def start(workspace: Path, llm_env: dict[str, str]) -> Iterator[Start]:
    """`start("--yolo", "prompt")` returns while it runs; whatever is left at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start_it(
        *args: str,
        stdin: int = subprocess.DEVNULL,
        env: dict[str, str] | None = None,
        launcher: tuple[str, ...] = (),
    ) -> Live:
        process = start_crushpy(
            "run",
            *STREAM,
            *args,
            launcher=launcher,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=workspace,
            env={**llm_env, **(env or {})},
        )
        started.append(process)
        return Live(process)

    yield start_it
    for process in started:
        process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
