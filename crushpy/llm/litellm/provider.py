"""Every provider without a built-in client, through litellm, which runs in a process of its own.

One process serves all calls. Nothing here waits for it to import litellm: that takes about four seconds.
"""

import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from crushpy.core.messages import Data, Json
from crushpy.http.common import Timeouts
from crushpy.llm.errors import CutStream, ModelError, Unavailable
from crushpy.llm.protocol import Done, Piece, Request
from crushpy.util.helper_process import HelperProcess

IDLE_TIMEOUT_S = 300.0
"""The process is ended after this time without a call: it holds 250 MB."""
STDERR_TAIL_BYTES = 2_000
LOAD_FAILED = 3
"""Exit code of the process if litellm cannot be imported; the last line on stderr says why."""


def begin_loading() -> None:
    """Start the litellm process if it is not running. Does not wait, and does not raise."""
    with suppress(ModelError):  # reported by the request that needs it
        LiteLLMProcess.shared()


class LiteLLMProvider:
    """Implements `llm.protocol.Provider`. `as_openai`: litellm sees an OpenAI-compatible server."""

    def __init__(self, access: "ProviderAccess", *, as_openai: bool = False) -> None:
        self._access = access
        self._as_openai = as_openai

    @property
    def slow_to_begin(self) -> bool:
        current = LiteLLMProcess.current
        return current is None or current.ended or not current.ready

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        if self._as_openai:
            name = f"openai/{request.model.partition('/')[2]}"
            request = msgspec.structs.replace(request, model=name)
        return LiteLLMProcess.shared().stream(self._access, request)

    async def close(self) -> None:
        """Providers share the process, which ends with crushpy."""


class LiteLLMProcess(HelperProcess["Piece | ModelError"]):
    def __init__(self) -> None:
        """Raises Unavailable if the process cannot be started."""
        self.ready = False
        self.idle_timeout_s = IDLE_TIMEOUT_S
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        # Without bytecode litellm takes twice as long to load, each time. No module of the user's project is
        # loaded, so bytecode is written to crushpy's own folders only.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        try:
            super().__init__("crushpy.llm.litellm.helper:run_helper", environment, stderr=self._stderr)
        except OSError as error:
            raise Unavailable(f"The litellm process could not be started: {error}.") from error

    async def stream(self, access: "ProviderAccess", request: Request) -> AsyncIterator[Piece]:
        """As `llm.protocol.Provider.stream`."""
        call, answers = self.begin_request()
        self.send(Call(call, access, request))
        answer: Piece | ModelError | None = None
        try:
            while not isinstance(answer, Done):
                answer = await answers.get()
                if isinstance(answer, ModelError):
                    raise answer
                yield answer
        finally:
            self.end_request(call)
            if not isinstance(answer, Done):
                self.send(Call(call))

    def end(self) -> None:
        """Kill the process: litellm is slow to exit by itself."""
        super().end()
        self.process.kill()

    def receive(self, line: bytes) -> None:
        answer = decode_answer(line)
        if answer.id:
            self.deliver(answer.id, answer.content())
        else:
            self.ready = True

    def explain_end(self, error: Exception | None) -> ModelError:
        from crushpy.security.redact import redact

        if error is not None:
            return CutStream(f"The litellm process ({self.pid}) sent an invalid message: {error}")
        code = self.process.wait()
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


# --- the messages on the pipes: one line of JSON each


class ProviderAccess(Data, frozen=True):
    """How to reach a provider. litellm reads the environment if there is no key or address."""

    api_base: str | None = None
    api_key: str | None = None
    key_variable: str = ""
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
