"""Reads a reply in the OpenAI chat format, chunk by chunk, from plain servers and from litellm. Pure.

Servers differ in how they index and slice tool calls, so calls get an index of our own.
"""

from typing import Any, cast

import msgspec

from crushpy.core.messages import Finish, Json, Usage
from crushpy.llm.http_provider import ReplyReader, Reported
from crushpy.llm.protocol import CallPiece, Done, Piece, PromptRead, TextPiece, ThinkingOpaque, ThinkingPiece
from crushpy.llm.text_calls import TextCalls
from crushpy.util.read_json import as_object, as_objects, as_text, first_count, is_json

FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("tool_calls", "function_call"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
    **dict.fromkeys(("content_filter", "safety", "refusal"), "content_filter"),
}
"""Any other reason counts as `stop`."""


class _Call(msgspec.Struct):
    """A tool call as received so far."""

    id: str = ""
    name: str = ""
    slices: list[str] = []

    @property
    def args(self) -> str:
        return "".join(self.slices)


class ChunkReader(ReplyReader):
    def __init__(self, text_calls: TextCalls | None = None) -> None:
        """`text_calls` finds calls that the model writes as text."""
        super().__init__()
        self._text_calls = text_calls
        self.usage: Usage | None = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}
        """The server's index of a call -> ours."""
        self._unsigned: list[str] = []
        """Thinking whose signature has not arrived yet."""
        self._has_content = False

    def feed(self, event: Json) -> list[Piece]:
        """The pieces of one chunk; none if it has an unexpected shape."""
        if isinstance(usage := event.get("usage"), dict):
            self.usage = read_usage(cast(Json, usage))
        progress = as_object(event.get("prompt_progress"))
        if total := first_count(progress, "total"):
            return [PromptRead(first_count(progress, "processed"), total)]
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:
            return []
        choice = as_object(cast("list[Any]", choices)[0])
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason
        # A server that does not stream sends one complete message.
        delta = as_object(choice.get("delta") or choice.get("message"))
        pieces = [*self._thinking(delta), *self._prose(delta), *_text(delta.get("refusal"))]
        pieces += map(self._call, as_objects(delta.get("tool_calls")))
        self._has_content = self._has_content or bool(pieces)
        return pieces

    def done(self) -> Done:
        """The end of a reply that is known to be complete."""
        written = self._text_calls
        if self._calls and self.finish_reason in ("", "stop"):
            # Many servers send "stop" after tool calls.
            return Done("tool_calls", self.usage, call_form=written.kind if written else "")
        if self.finish_reason:
            passed_over = written.passed_over if written else ""
            return Done(FINISHES.get(self.finish_reason, "stop"), self.usage, passed_over=passed_over)
        return Done("stop" if self._has_content else "", self.usage)

    def read_whole(self, reply: Json) -> list[Piece] | None:
        return self.feed(reply) if "choices" in reply else None

    def last_pieces(self) -> list[Piece]:
        if self._text_calls is None:
            return []
        # The arguments of a reply that was cut off may be incomplete.
        complete = not self._calls and self.finish_reason in ("", "stop")
        prose, calls = self._text_calls.end(read=complete)
        self._calls += [_Call(name=call.name) for call in calls]
        return [*([TextPiece(prose)] if prose else []), *calls]

    def end(self) -> Done | None:
        if self.finish_reason == "error":
            raise Reported({"error": {"message": "it failed in the middle of its reply", "code": 500}})
        complete = all(not call.args.strip() or is_json(call.args) for call in self._calls)
        return self.done() if self.finish_reason or (self.ended and complete) else None

    def _prose(self, delta: Json) -> list[Piece]:
        """The text, without what may still become a call; a piece is empty while all of it may."""
        pieces = _text(delta.get("content"))
        if self._text_calls is None:
            return pieces
        return [
            TextPiece(self._text_calls.feed(piece.text)) if isinstance(piece, TextPiece) else piece
            for piece in pieces
        ]

    def _thinking(self, delta: Json) -> list[Piece]:
        pieces: list[Piece] = []
        text = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning"))
        if text:
            pieces.append(ThinkingPiece(text))
        for block in as_objects(delta.get("thinking_blocks")):
            if block.get("type") == "redacted_thinking":
                pieces.append(ThinkingOpaque(block))
                continue
            self._unsigned.append(as_text(block.get("thinking")))
            if signature := as_text(block.get("signature")):
                # The signature comes last and is only valid with the complete text.
                thinking = "".join(self._unsigned)
                pieces.append(
                    ThinkingOpaque({"type": "thinking", "thinking": thinking, "signature": signature})
                )
                self._unsigned.clear()
        return pieces

    def _call(self, given: Json) -> CallPiece:
        function = as_object(given.get("function"))
        call_id, name = as_text(given.get("id")), as_text(function.get("name"))
        args = function.get("arguments")
        # Some servers send arguments as an object instead of its JSON text.
        text = args if isinstance(args, str) else msgspec.json.encode(args).decode() if args else ""
        position = self._find_call(given.get("index"), call_id, name)
        call = self._calls[position]
        if name and call.name and (call.slices or name == call.name):
            name = ""  # some servers repeat it with every slice
        call.id = call.id or call_id
        call.name += name
        if text:
            call.slices.append(text)
        opaque = {key: given[key] for key in ("extra_content", "provider_specific_fields") if given.get(key)}
        return CallPiece(position, call_id, name, text, opaque or None)

    def _find_call(self, index: object, call_id: str, name: str) -> int:
        """Our index of the call to which a slice belongs, or that it starts."""
        known = self._by_index.get(index, -1) if isinstance(index, int) else len(self._calls) - 1
        if known >= 0:
            # Some servers give every call the index 0, or no index at all.
            call = self._calls[known]
            other_id = bool(call_id and call.id) and call_id != call.id
            complete = not isinstance(index, int) and is_json(call.args)
            if not name or not (other_id or complete):
                return known
        self._calls.append(_Call())
        if isinstance(index, int):
            self._by_index[index] = len(self._calls) - 1
        return len(self._calls) - 1


def read_usage(usage: Json) -> Usage:
    """The server's token counts, in both of OpenAI's protocols. Tokens read from or written to a cache are
    not counted as input; the output includes reasoning."""
    details = as_object(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    read = first_count(details, "cached_tokens") or first_count(
        usage, "cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens"
    )
    written = first_count(details, "cache_creation_tokens", "cache_write_tokens") or first_count(
        usage, "cache_creation_input_tokens"
    )
    prompt = first_count(usage, "prompt_tokens", "input_tokens")
    cost = usage.get("cost")
    return Usage(
        input_tokens=max(0, prompt - read - written),
        output_tokens=first_count(usage, "completion_tokens", "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else 0.0,
    )


def _text(content: object) -> list[Piece]:
    if isinstance(content, str):
        return [TextPiece(content)] if content else []
    # Mistral sends a list of parts that includes its thinking.
    pieces: list[Piece] = []
    for part in as_objects(content):
        if part.get("type") == "thinking":
            texts = [as_text(piece.get("text")) for piece in as_objects(part.get("thinking"))]
            pieces += [ThinkingPiece(text) for text in texts if text]
        elif text := as_text(part.get("text")):
            pieces.append(TextPiece(text))
    return pieces
