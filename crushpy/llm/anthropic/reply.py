"""Reads a reply in Anthropic's Messages format, event by event. Pure."""

from collections.abc import Callable

import msgspec

from crushpy.core.messages import BOUND_PREFIX, Finish, Json, Usage
from crushpy.llm.anthropic.request import TOOL_SEARCH
from crushpy.llm.anthropic.thinking_binding import BoundRequest
from crushpy.llm.errors import Refused
from crushpy.llm.http_provider import ReplyReader
from crushpy.llm.opaque_parts import SEARCH_COST, WEB_SEARCH, cite, record_position
from crushpy.llm.protocol import CallPiece, Done, Piece, ThinkingOpaque, ThinkingPiece
from crushpy.util.read_json import as_index, as_object, as_objects, as_text, first_count, is_json

FINISHES: dict[str, Finish] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""Any other reason counts as `stop`."""
MAX_PAUSES = 10
"""A turn that pauses more often ends as it is."""

_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _Block(msgspec.Struct):
    """A block as received so far."""

    start: Json
    kind: str
    call: int = -1
    """Our index of a tool call."""
    slices: list[str] = []
    """Text, thinking or arguments."""
    signature: str = ""
    citations: list[Json] = []
    position: tuple[int, int] = (0, 0)
    """Characters of text and number of calls before it."""

    @property
    def text(self) -> str:
        return "".join(self.slices)


class MessageReader(ReplyReader):
    def __init__(self, model: str, bound: Callable[[], BoundRequest | None] = lambda: None) -> None:
        """`bound` tells what the reply's thinking is bound to."""
        super().__init__(model)
        self.dropped_thoughts = 0
        """Thinking blocks that the server left out of the request."""
        self._bound = bound
        self.usages: list[Usage] = []
        """The usage of each request; a turn that paused has several."""
        self._stop_details: Json = {}
        self._counts: dict[str, int] = {}
        self._summaries: list[Json] = []
        """Parts of the usage; those of summaries are not in its totals."""
        self._open_blocks: dict[int, _Block] = {}
        """By the server's index."""
        self._blocks: list[_Block] = []
        self._earlier_blocks: list[Json] = []
        """Blocks of the turn's earlier requests."""
        self._calls: list[_Block] = []
        self._searches = 0

    def feed(self, event: Json) -> list[Piece]:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(as_index(event.get("index")), as_object(event.get("delta")))
            case "content_block_start":
                return self._open(as_index(event.get("index")), as_object(event.get("content_block")))
            case "content_block_stop":
                return self._close(self._open_blocks.pop(as_index(event.get("index")), None))
            case "message_start":
                self._count(as_object(as_object(event.get("message")).get("usage")))
                self._note_transformations(as_object(event.get("message")))
            case "message_delta":
                self._count(as_object(event.get("usage")))
                self._note_transformations(event)
                self._finish(as_object(event.get("delta")))
            case "message_stop":
                self.ended = True
            case _:
                pass  # ping, and unknown events
        return []

    def read_whole(self, reply: Json) -> list[Piece] | None:
        if not isinstance(reply.get("content"), list):
            return None
        pieces: list[Piece] = []
        for index, block in enumerate(as_objects(reply.get("content"))):
            pieces += self._open(index, block)
            pieces += self._close(self._open_blocks.pop(index))
        self._count(as_object(reply.get("usage")))
        self._note_transformations(reply)
        self._finish(reply)
        return pieces

    def end(self) -> Done | None:
        complete = all(not call.text.strip() or is_json(call.text) for call in self._calls)
        if not self.finish_reason and not (self.ended and complete):
            return None
        if self.finish_reason == "refusal":
            details = self._stop_details
            reason = as_text(details.get("explanation")) or as_text(details.get("category"))
            raise Refused(f"{self._model} refused to answer{f': {reason}' if reason else ''}.")
        self.usages.append(self._usage())
        if self.finish_reason == "pause_turn" and len(self.usages) <= MAX_PAUSES:
            self._earlier_blocks += [_as_received(block) for block in self._blocks]
            self.unfinished = list(self._earlier_blocks)
            self._blocks, self._counts, self.finish_reason = [], {}, ""
            return Done("", None)
        finish = FINISHES.get(self.finish_reason, "stop")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        usage = self.usages[-1] if self.usages[-1].total else None
        return Done(finish, usage, self._searches * SEARCH_COST)

    # --- blocks

    def _open(self, index: int, start: Json) -> list[Piece]:
        kind = as_text(start.get("type"))
        cited = as_objects(start.get("citations"))
        self._searches += kind == "server_tool_use" and start.get("name") == WEB_SEARCH
        block = _Block(start, kind, slices=[], citations=cited, position=(self._text_chars, len(self._calls)))
        self._open_blocks[index] = block
        self._blocks.append(block)
        if kind == "tool_use":
            block.call = len(self._calls)
            self._calls.append(block)
            return [CallPiece(block.call, as_text(start.get("id")), as_text(start.get("name")))]
        if kind in ("text", "compaction"):
            return self._add_text(block, as_text(start.get("text" if kind == "text" else "content")))
        if kind == "thinking":
            block.signature = as_text(start.get("signature"))
            return self._add_thinking(block, as_text(start.get("thinking")))
        return []

    def _delta(self, index: int, delta: Json) -> list[Piece]:
        block = self._open_blocks.get(index)
        if block is None:
            return []
        match delta.get("type"):
            case "text_delta":
                return self._add_text(block, as_text(delta.get("text")))
            case "input_json_delta":
                piece = as_text(delta.get("partial_json"))
                block.slices.append(piece)
                return [CallPiece(block.call, args=piece)] if piece and block.call >= 0 else []
            case "thinking_delta":
                return self._add_thinking(block, as_text(delta.get("thinking")))
            case "citations_delta":
                block.citations.append(as_object(delta.get("citation")))
            case "signature_delta":
                block.signature += as_text(delta.get("signature"))
            case "compaction_delta":
                block.start |= {key: value for key, value in delta.items() if key != "type"}
                return self._add_text(block, as_text(delta.get("content")))
            case _:
                pass
        return []

    def _add_text(self, block: _Block, text: str) -> list[Piece]:
        block.slices.append(text)
        return self._say(text)

    def _add_thinking(self, block: _Block, text: str) -> list[Piece]:
        block.slices.append(text)
        return [ThinkingPiece(text)] if text else []

    def _close(self, block: _Block | None) -> list[Piece]:
        if block is None:
            return []
        if block.kind == "text" and block.citations:
            return self._add_text(
                block, "".join([cite(citation, self._cited) for citation in block.citations])
            )
        if block.kind == "redacted_thinking" or (block.kind == "thinking" and block.signature):
            bound, data = self._bound(), record_position(_as_received(block), *block.position)
            return [ThinkingOpaque({**data, BOUND_PREFIX: bound.prefix} if bound is not None else data)]
        name = as_text(block.start.get("name"))
        if block.kind == "tool_search_tool_result" or name == TOOL_SEARCH["name"]:
            return [ThinkingOpaque(record_position(_as_received(block), *block.position))]
        if block.kind == "compaction" and block.text:
            bound = self._bound()
            data = {**block.start, "content": block.text}
            if block.signature:
                data["signature"] = block.signature
            return [ThinkingOpaque({**data, BOUND_PREFIX: bound.replaced if bound is not None else ""})]
        if block.kind == "tool_use" and not block.slices and block.start.get("input"):
            # Some servers send all arguments at the start of the call.
            block.slices.append(msgspec.json.encode(block.start["input"]).decode())
            return [CallPiece(block.call, args=block.text)]
        return []

    # --- the end

    def _count(self, usage: Json) -> None:
        """The counts at the start are repeated or completed at the end: the last ones are used."""
        for name in _COUNTS:
            self._counts[name] = first_count(usage, name) or self._counts.get(name, 0)
        self._summaries = as_objects(usage.get("iterations")) or self._summaries

    def _note_transformations(self, source: Json) -> None:
        """The start and the end of a reply list the same changes."""
        changes = as_objects(source.get("input_transformations"))
        dropped = sum(change.get("type") == "thinking_dropped" for change in changes)
        self.dropped_thoughts = max(self.dropped_thoughts, dropped)

    def _usage(self) -> Usage:
        summaries = [each for each in self._summaries if each.get("type") == "compaction"]
        uncached, output, read, written = (
            self._counts.get(name, 0) + sum(first_count(each, name) for each in summaries) for name in _COUNTS
        )
        if not (uncached or read or written):
            return Usage()  # nothing was reported: every request has input
        return Usage(uncached, output, cache_read_tokens=read, cache_write_tokens=written)

    def _finish(self, delta: Json) -> None:
        self.finish_reason = as_text(delta.get("stop_reason")) or self.finish_reason
        self._stop_details = as_object(delta.get("stop_details")) or self._stop_details


def _as_received(block: _Block) -> Json:
    """The complete block in the server's own form."""
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "thinking":
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case _ if block.slices:
            return {**block.start, "input": msgspec.json.decode(block.text) if is_json(block.text) else {}}
        case _:
            return block.start
