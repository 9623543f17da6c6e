"""A model that answers from a script, for tests of programs that use crushpy: no network, no key."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Json, Usage
from crushpy.llm import errors
from crushpy.llm.protocol import CallPiece, Done, Piece, Provider, Request, Sent, TextPiece
from crushpy.llm.tokens import BYTES_PER_TOKEN, sent_text

NAME = "demo/scripted"
DEFAULT_WINDOW = 200_000
_FAULTS: dict[str, type[errors.ModelError]] = {
    "rate_limit": errors.RateLimited,
    "unavailable": errors.Unavailable,
    "timeout": errors.TimedOut,
    "cut": errors.CutStream,
    "overflow": errors.ContextOverflow,
    "refused": errors.Refused,
    "authentication": errors.AuthenticationFailed,
    "bad_request": errors.BadRequest,
}


class Call(msgspec.Struct, frozen=True):
    """A tool call of the model."""

    name: str
    args: Json = msgspec.field(default_factory=dict[str, Any])


class Fault(msgspec.Struct, frozen=True):
    """A failure of the server."""

    kind: Literal[
        "rate_limit", "unavailable", "timeout", "cut", "overflow", "refused", "authentication", "bad_request"
    ]
    text: str = "scripted fault"


class ScriptedRequest(msgspec.Struct, frozen=True):
    """What the model was sent."""

    system: str
    texts: tuple[str, ...]
    """Of all messages and tool results, in order."""
    tools: tuple[str, ...]

    @property
    def last(self) -> str:
        return self.texts[-1] if self.texts else ""


Step = str | Call | Fault | Sequence[str | Call] | Callable[[ScriptedRequest], Any]


class Expect(msgspec.Struct, frozen=True):
    """A reply that is given only if the request contains a text; otherwise the run fails."""

    text: str
    then: Any
    """The step."""


class ScriptedModel:
    """Answers one request after the other: with a text, a call, a list of both, a fault, or a function that
    gets the request and returns one of them. Requests for a summary are answered with `summary`."""

    slow_to_begin = False

    def __init__(
        self, script: Sequence[Step | Expect], *, window: int = DEFAULT_WINDOW, summary: str = "Goal: go on."
    ) -> None:
        self.window = window
        self.summary = summary
        self.requests: list[ScriptedRequest] = []
        """Those that the script has answered."""
        self._script = list(script)

    @property
    def remaining(self) -> int:
        """Steps that were not used yet."""
        return len(self._script)

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        yield Sent()
        texts = tuple(sent_text(part) for message in request.messages for part in message.parts)
        seen = ScriptedRequest(request.system, texts, tuple(tool.name for tool in request.tools))
        items = self._next(seen)
        for index, item in enumerate(items):
            if isinstance(item, str):
                yield TextPiece(item)
            else:
                arguments = msgspec.json.encode(item.args).decode()
                yield CallPiece(index, id=f"call_{new_id()}", name=item.name, args=arguments)
        calls = any(isinstance(item, Call) for item in items)
        used = sum(map(len, (request.system, *texts))) // BYTES_PER_TOKEN
        written = sum(len(item) if isinstance(item, str) else 20 for item in items) // BYTES_PER_TOKEN
        yield Done("tool_calls" if calls else "stop", Usage(used + 1, written + 1))

    def _next(self, seen: ScriptedRequest) -> list[str | Call]:
        if not seen.tools:
            return [self.summary]
        self.requests.append(seen)
        if not self._script:
            raise errors.BadRequest(
                f"The script of the model is at its end after {len(self.requests) - 1} replies.",
                f"The request ended with: {seen.last[-200:]!r}",
            )
        step: Any = self._script.pop(0)
        if isinstance(step, Expect):
            if step.text not in "\n".join((seen.system, *seen.texts)):
                raise errors.BadRequest(
                    f"The script expected {step.text!r} in request {len(self.requests)}.",
                    f"It ended with: {seen.last[-200:]!r}",
                )
            step = step.then
        if callable(step):
            step = step(seen)
        if isinstance(step, Fault):
            raise _FAULTS[step.kind](step.text)
        items: list[Any] = [step] if isinstance(step, str | Call) else list(step)
        if wrong := [item for item in items if not isinstance(item, str | Call)]:
            raise UsageError(f"{wrong[0]!r} cannot be a part of a scripted reply.", "Use texts and Calls.")
        return items

    async def close(self) -> None:
        pass


def model_options(model: str | ScriptedModel) -> tuple[str, dict[str, Provider], dict[str, object]]:
    """The name of a model, the providers that are made already, and the settings that it needs."""
    if isinstance(model, str):
        return model, {}, {}
    return NAME, {NAME: model}, {f'models."{NAME}".context_window': model.window}
