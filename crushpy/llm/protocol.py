"""The interface of every provider: requests, pieces of a reply, and what is known about a model."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from msgspec import structs

from crushpy.core.messages import Data, Finish, Json, Message, SentStatus, SignedSummary, Usage

THINKING_TOKENS = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Thinking budget for each effort, for models that need a number."""


class ToolSpec(Data, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of its arguments."""


class DeferredTool(ToolSpec, frozen=True):
    """A tool whose definition is not in the window until the vendor's own search finds it."""

    server: str = ""
    """The MCP server that has it."""


class Request(Data, frozen=True):
    """One model call. `messages` is a valid history: see context/history.py."""

    model: str
    """litellm's name: openai/gpt-5, anthropic/claude-..., ollama/qwen3, demo/tour."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    deferred: tuple[DeferredTool, ...] = ()
    """Sent only if the vendor can search tools. They can also be called through one of `tools`."""
    web_search: bool = False
    """Offer the vendor's own web search, if its protocol has one."""
    max_output_tokens: int | None = None
    effort: str = ""
    """Thinking effort if the model supports it: low, medium, high. Empty: the provider's default."""
    temperature: float | None = None
    """How much chance there is in its words, where the protocol has it. None: the server's default."""
    status: str = ""
    """The context status, which is never part of the cached prefix. Empty: none."""
    status_placement: str = "message"
    """message: a trailing system message; append: at the end of the last message's text; keep: a system
    message that stays in every later request."""
    statuses: tuple[SentStatus, ...] = ()
    """With `keep`: what earlier requests sent, in no particular order."""
    tool_changes: SentStatus | None = None
    """With `keep`: tools that come or go with this request; `tools` stays as in the first request."""
    signed_summary: SignedSummary | None = None
    """Sent in place of the first message's summary, if the model accepts it."""
    rest_of_seed: str = ""
    """With `signed_summary`: the first message without its summary."""
    summarize: str = ""
    """Instructions for a summary of `messages`, written and signed by the vendor, in place of a reply."""
    return_thinking: bool = True
    """Send signed thinking back to the model that made it; False if its server refused that."""


class Sent(Data, frozen=True, tag="sent"):
    """The request is on its way. First item of every stream, exactly once."""


class PromptRead(Data, frozen=True, tag="prompt"):
    """How much of the prompt a slow server has read, in tokens. Before the reply's other pieces."""

    done: int
    total: int


class TextPiece(Data, frozen=True, tag="text"):
    text: str


class ThinkingPiece(Data, frozen=True, tag="thinking"):
    text: str


class ThinkingOpaque(Data, frozen=True, tag="opaque"):
    """A signed or encrypted block of thinking, to be stored whole and sent back whole."""

    data: Json


class CallPiece(Data, frozen=True, tag="call"):
    """A piece of a tool call. Pieces with one `index` belong together; `args` is a slice of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    args: str = ""
    opaque: Json | None = None


class Done(Data, frozen=True, tag="done"):
    """The reply is complete. Last item of every stream that did not fail, exactly once."""

    finish: Finish
    usage: Usage | None = None
    """None if the provider reported none."""
    search_cost: float = 0.0
    """Of web searches, in US dollars."""
    status_moved: bool = False
    """The server refused a trailing system message, so the status was appended to the last one instead."""
    thinking_dropped: bool = False
    """The server refused the signed thinking of this request, so it was sent again without."""
    dropped_thoughts: int = 0
    """Earlier replies whose signed thinking did not reach the model, because what precedes it has changed."""
    call_form: str = ""
    """The calls were read from the model's text: fenced, tagged or bare."""
    passed_over: str = ""
    """The tool of a call that the model wrote into its text, but with prose after it: it counts as prose."""


Piece = Sent | PromptRead | TextPiece | ThinkingPiece | ThinkingOpaque | CallPiece | Done


class Provider(Protocol):
    """Answers requests.

    `stream` raises only `llm.errors.ModelError` (and CancelledError). It does not retry. A stream that ends
    without the provider's own end mark raises `CutStream`: it never ends in `Done`. Closing the
    iterator, or cancelling the task that reads it, closes the connection.
    """

    @property
    def slow_to_begin(self) -> bool:
        """A request would leave only after seconds, which the user is shown."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Piece]: ...

    async def close(self) -> None:
        """Close idle connections. Must not raise."""
        ...


class TokenPrices(Data, frozen=True, kw_only=True):
    """US dollars a million tokens; None if unknown."""

    input_cost: float | None = None
    output_cost: float | None = None
    cache_read_cost: float | None = None
    cache_write_cost: float | None = None
    hour_write_cost: float | None = None
    """Of what the cache keeps for an hour."""


class LongPrices(TokenPrices, frozen=True):
    """Prices of a request whose input is longer than `over` tokens."""

    over: int


class ModelInfo(TokenPrices, frozen=True):
    """The properties of a model."""

    name: str
    context_window: int | None = None
    max_output_tokens: int | None = None
    long: LongPrices | None = None
    """Prices of a long request, if they differ."""
    tools: bool = True
    images: bool | None = None
    """Whether it accepts images; None if unknown."""
    thinking: bool = False
    call_form: str = ""
    """How it writes tool calls into its text, as learnt: fenced, tagged or bare; empty: it does not."""
    source: str = "default"
    """Where the window comes from: settings, learnt (from its server), catalog or default."""


# --- the size of one reply: a server that never stops must not fill the memory


MAX_REPLY_BYTES = 2_000_000
"""UTF-8 bytes of text, thinking and arguments together: four times the longest reply any model gives."""
MAX_REPLY_CALLS = 20_000


class ReplyMeter:
    """Counts one reply as it arrives. The piece that reaches a limit is truncated, and `full` is set."""

    def __init__(self) -> None:
        self._left = MAX_REPLY_BYTES
        self._calls: set[int] = set()
        self.full = False

    def measure(self, piece: Piece) -> Piece:
        """Count a piece. Returns as much of it as the limit allows."""
        match piece:
            case TextPiece() | ThinkingPiece():
                return structs.replace(piece, text=self._fit(piece.text))
            case CallPiece():
                self._calls.add(piece.index)
                self.full = self.full or len(self._calls) >= MAX_REPLY_CALLS
                return structs.replace(piece, args=self._fit(piece.args))
            case _:
                return piece

    def _fit(self, text: str) -> str:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > self._left:
            self.full = True
            text = text.encode("utf-8", "surrogatepass")[: self._left].decode("utf-8", "ignore")
        self._left -= min(size, self._left)
        return text
