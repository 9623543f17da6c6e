"""What the scripted server can be told to answer: replies, and faults built round a reply."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from crushpy.core.messages import Usage

Body = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call. `args` is an object, or text to send as it is (broken JSON, say)."""

    name: str
    args: dict[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    """None: one is made, unique on the server."""


@dataclass(frozen=True)
class Reply:
    """A complete answer."""

    text: str = ""
    thinking: str = ""
    signature: str = "c2lnbmF0dXJl"
    """Of the thinking (Anthropic) or the first call (Gemini); the encrypted reasoning (Responses)."""
    calls: list[Call] = field(default_factory=list)
    usage: Usage | Literal["auto"] | None = "auto"
    """auto: a quarter of the characters of request and reply. None: the server reports no usage."""
    finish: str = ""
    """As OpenAI names it: stop, tool_calls, length, content_filter. Empty: what fits."""
    chunk: int = 0
    """Text, thinking and arguments are split every so many characters; 0: one piece each."""
    delay: float = 0.0
    """Seconds between two pieces."""
    source: tuple[str, str] | None = None
    """Address and title of a page: the reply searches the web first, and cites it."""
    found: str = ""
    """Anthropic and Responses: the vendor's tool search runs before the calls and finds this tool."""
    is_summary: bool = False
    """Anthropic: the text is that of a signed compaction block."""

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


def _partial() -> Reply:
    return Reply(text="This reply will not")


@dataclass(frozen=True)
class Fail:
    """An HTTP error. `body` is JSON, or text to send as it is; None: an error in the format asked for."""

    status: int = 500
    body: dict[str, Any] | str | None = None
    message: str = "scripted failure"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RateLimit:
    """429, with Retry-After where given."""

    retry_after: float | str | None = None
    message: str = "Rate limit reached."


@dataclass(frozen=True)
class Overflow:
    """400: the request is larger than the window."""

    limit: int = 8192
    used: int = 9000


@dataclass(frozen=True)
class Stall:
    """Sends the headers and `after` pieces of `reply`, then nothing until `release()` or the client goes.

    With `headers=False` not even the headers. When released, the rest follows.
    """

    reply: Reply = field(default_factory=_partial)
    after: int = 1
    headers: bool = True


@dataclass(frozen=True)
class Cut:
    """Sends `after` pieces of `reply` and closes the socket. None: half of them."""

    reply: Reply = field(default_factory=_partial)
    after: int | None = None


@dataclass(frozen=True)
class Garbage:
    """Sends `after` pieces of `reply`, then a piece that is no JSON, then the rest."""

    reply: Reply = field(default_factory=_partial)
    after: int = 1
    garbage: str = '{"choices": [{"delta": {"content": oops'


@dataclass(frozen=True)
class NoFinish:
    """All of `reply` except its finish reason. `done`: with OpenAI's closing [DONE] all the same."""

    reply: Reply = field(default_factory=_partial)
    done: bool = False


@dataclass(frozen=True)
class Empty:
    """A well-formed reply that holds nothing."""


@dataclass(frozen=True)
class StreamError:
    """200 and `after` pieces of `reply`, then an error object inside the stream, then the end."""

    reply: Reply = field(default_factory=_partial)
    after: int = 1
    message: str = "The server had an error while processing your request."
    code: str | int | None = "server_error"


@dataclass(frozen=True)
class Raw:
    """A body sent byte for byte, whole, with this content type.

    `hang`: as a stream that does not end after it, until `release()` or the client goes.
    """

    body: str | bytes
    content_type: str = "text/event-stream"
    status: int = 200
    hang: bool = False
    cut: bool = False
    """As a stream whose socket is closed after it."""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else self.body


@dataclass(frozen=True)
class KeepAlive:
    """200, and then nothing but comments, one every `every` seconds, until the client goes."""

    every: float = 0.02
    comment: str = ": keep-alive"


Answer = (
    KeepAlive
    | Reply
    | Raw
    | Fail
    | RateLimit
    | Overflow
    | Stall
    | Cut
    | Garbage
    | NoFinish
    | Empty
    | StreamError
)
Step = Answer | str | Callable[[Body], Answer | str]
"""A text is short for `Reply(text=...)`; a function is given the request's body."""


def split(text: str, size: int) -> list[str]:
    """`text` in pieces of `size` characters (whole for 0); nothing for no text."""
    if not text:
        return []
    return [text[i : i + size] for i in range(0, len(text), size)] if size else [text]
