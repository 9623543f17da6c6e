"""Every provider without a built-in client, through litellm, which runs in a process of its own.

One process serves all calls. Nothing here waits for it to import litellm: that takes about four seconds.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

import crushpy
from crushpy.core.messages import Data, Json
from crushpy.core.own_code import is_importable
from crushpy.http import Timeouts
from crushpy.llm.errors import CutStream, ModelError, Unavailable
from crushpy.llm.protocol import Done, Piece, Request
from crushpy.security.sanitize import encodable

IDLE_TIMEOUT_S = 300.0
"""The process is ended after this time without a call: it holds 250 MB."""
STDERR_TAIL_BYTES = 2_000
_HELPER_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from crushpy.core.own_code import restrict_imports
restrict_imports()
from crushpy.llm.litellm.helper import run_helper
run_helper()
"""
LOAD_FAILED = 3
"""Exit code of the process if litellm cannot be imported; the last line on stderr says why."""
_current: "LiteLLMProcess | None" = None


def start_process() -> "LiteLLMProcess":
    """The process that all providers share, started if it is not running."""
    global _current  # noqa: PLW0603
    if _current is None or _current.ended:
        _current = LiteLLMProcess()
    return _current


def begin_loading() -> None:
    """Start the litellm process if it is not running. Does not wait, and does not raise."""
    with suppress(ModelError):  # reported by the request that needs it
        start_process()


class LiteLLMProvider:
    """Implements `llm.protocol.Provider`. `as_openai`: litellm sees an OpenAI-compatible server."""

    def __init__(self, access: "ProviderAccess", *, as_openai: bool = False) -> None:
        self._access = access
        self._as_openai = as_openai

    @property
    def slow_to_begin(self) -> bool:
        return _current is None or _current.ended or not _current.ready

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        if self._as_openai:
            name = f"openai/{request.model.partition('/')[2]}"
            request = msgspec.structs.replace(request, model=name)
        return start_process().stream(self._access, request)

    async def close(self) -> None:
        """Providers share the process, which ends with crushpy."""


class LiteLLMProcess:
    """One litellm process. `ended` once no call can be made through it any more.

    Two threads own the pipes, so calls may come from any event loop.
    """

    def __init__(self) -> None:
        """Raises Unavailable if the process cannot be started."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                # -P: the current folder, which belongs to the user's project, is not on sys.path.
                [sys.executable, "-P", "-c", _HELPER_SCRIPT, str(Path(crushpy.__file__).parents[1])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=_environment(),
                start_new_session=True,  # Ctrl+C in the terminal is for the app
            )
        except OSError as error:
            raise Unavailable(f"The litellm process could not be started: {error}.") from error
        self.pid = self._process.pid
        self.ready = self.ended = False
        self._ids = count(1)
        self._calls: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Piece | ModelError]]] = {}
        self._outgoing: SimpleQueue[Call | None] = SimpleQueue()
        atexit.register(self.end)
        for work in (self._read, self._write):
            threading.Thread(target=work, name="litellm pipe", daemon=True).start()

    async def stream(self, access: "ProviderAccess", request: Request) -> AsyncIterator[Piece]:
        """As `llm.protocol.Provider.stream`."""
        call = next(self._ids)
        answers: asyncio.Queue[Piece | ModelError] = asyncio.Queue()
        self._calls[call] = asyncio.get_running_loop(), answers
        self._outgoing.put(Call(call, access, request))
        answer: Piece | ModelError | None = None
        try:
            if self.ended:  # too late for the reader thread to say so
                raise self._exit_error()
            while not isinstance(answer, Done):
                answer = await answers.get()
                if isinstance(answer, ModelError):
                    raise answer
                yield answer
        finally:
            del self._calls[call]
            if not isinstance(answer, Done):
                self._outgoing.put(Call(call))

    def end(self) -> None:
        """Kill the process: litellm is slow to exit by itself."""
        self.ended = True
        self._outgoing.put(None)
        self._process.kill()

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:
            while not self.ended:
                try:
                    message = self._outgoing.get(timeout=IDLE_TIMEOUT_S)
                except Empty:
                    if not self._calls:
                        self.end()
                    continue
                if message is not None:
                    pipe.write(encode_line(message))
                    pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as pipe:
                for line in pipe:
                    answer = decode_answer(line)
                    if answer.id:
                        self._deliver(answer.id, answer.content())
                    else:
                        self.ready = True
            self._fail(self._exit_error())
        except (msgspec.MsgspecError, RecursionError) as error:
            self._fail(CutStream(f"The litellm process ({self.pid}) sent an invalid message: {error}"))
            self._process.wait()

    def _deliver(self, call: int, answer: Piece | ModelError) -> None:
        if (waiting := self._calls.get(call)) is not None:
            loop, answers = waiting
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(answers.put_nowait, answer)

    def _fail(self, error: ModelError) -> None:
        """End the process. Every call in flight gets the error; the next one starts a new process."""
        self.end()
        for call in list(self._calls):
            self._deliver(call, error)

    def _exit_error(self) -> ModelError:
        from crushpy.security.redact import redact

        code = self._process.wait()
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - STDERR_TAIL_BYTES))
        last_line = self._stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        reason = redact(last_line)[:200]
        if code == LOAD_FAILED:
            return ModelError(
                f"litellm could not be loaded: {reason}",
                "Reinstall crushpy, or choose a model that does not need litellm (`crushpy models`).",
            )
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        what = f"{how}: {reason}" if reason and code > 0 else how
        kind = CutStream if self.ready else Unavailable
        return kind(f"The litellm process ({self.pid}) {what}. The next request starts a new one.")


def _environment() -> dict[str, str]:
    """Our environment, which holds the keys, with a Python path of absolute folders outside the project."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(each for each in folders if Path(each).is_absolute() and is_importable(each))
    # Without bytecode litellm takes twice as long to load, each time. No module of the user's project is
    # loaded, so bytecode is written to crushpy's own folders only.
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPATH": path}


# --- the messages on the pipes: one line of JSON each


class ProviderAccess(Data, frozen=True):
    """How to reach a provider. litellm reads the environment if there is no key or address.

    `extra` holds further arguments of every call.
    """

    api_base: str | None = None
    api_key: str | None = None
    key_variable: str = ""
    extra: Json = msgspec.field(default_factory=dict[str, Any])
    timeouts: Timeouts = Timeouts()


class Call(Data, frozen=True):
    """To the process. Answered until one answer holds `Done` or an error. Cancelled if it has no request."""

    id: int
    access: ProviderAccess = ProviderAccess()
    request: Request | None = None


class CallReply(Data, frozen=True):
    """From the process: a piece of a reply, or the ModelError that ended it. Id 0: litellm is imported."""

    id: int
    piece: Piece | None = None
    kind: str = ""
    fields: Json = msgspec.field(default_factory=dict[str, Any])

    @classmethod
    def from_error(cls, call: int, error: ModelError) -> "CallReply":
        return cls(call, None, error.kind, vars(error))

    def content(self) -> Piece | ModelError:
        if self.piece is not None:
            return self.piece
        kinds = {kind.kind: kind for kind in ModelError.__subclasses__()}
        error = kinds.get(self.kind, ModelError)(self.fields["message"], self.fields["hint"])
        vars(error).update(self.fields)
        return error


decode_call = msgspec.json.Decoder(Call).decode
decode_answer = msgspec.json.Decoder(CallReply).decode


def encode_line(message: Call | CallReply) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a server's reply
        return msgspec.json.encode(encodable(msgspec.to_builtins(message))) + b"\n"
