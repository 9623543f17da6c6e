"""Reads a reply in Anthropic's Messages format, event by event. Pure."""

from typing import Any

import msgspec

from crushpy.core.messages import Finish, Json, Usage
from crushpy.llm.errors import Refused
from crushpy.llm.opaque_parts import noted
from crushpy.llm.protocol import CallPiece, Done, Piece, TextPiece, ThinkingOpaque, ThinkingPiece
from crushpy.llm.read_json import as_index, as_object, as_objects, as_text, first_count, is_json

FINISHES: dict[str, Finish] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""Any other reason counts as `stop`: the server did say that it is done."""
MOST_PAUSES = 10
"""A turn that pauses more often is taken as it is."""

_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _Block(msgspec.Struct):
    """A block as far as it has come."""

    start: Json
    kind: str
    call: int = -1
    """Our index, of a tool call."""
    slices: list[str] = []
    """Text, thinking or arguments."""
    signature: str = ""
    before: tuple[int, int] = (0, 0)
    """How much text and how many calls came before it."""

    @property
    def text(self) -> str:
        return "".join(self.slices)


class MessageReader:
    """Feed it the events of a reply, then ask for its `end()`. See `http_provider.ReplyReader`."""

    def __init__(self, model: str) -> None:
        self.marked = False
        self.unfinished: list[Json] = []
        self.legs: list[Usage] = []
        """What each request of a turn used that paused and went on."""
        self._model = model
        self._stop = ""
        self._details: Json = {}
        self._counts: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        """By the server's index: the newest of each."""
        self._all: list[_Block] = []
        self._earlier: list[Json] = []
        """Blocks of the turn's earlier requests."""
        self._calls: list[_Block] = []
        self._text = 0

    @property
    def finished(self) -> bool:
        return bool(self._stop)

    def feed(self, event: Json) -> list[Piece]:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(as_index(event.get("index")), as_object(event.get("delta")))
            case "content_block_start":
                return self._open(as_index(event.get("index")), as_object(event.get("content_block")))
            case "content_block_stop":
                return self._close(self._blocks.pop(as_index(event.get("index")), None))
            case "message_start":
                self._count(as_object(as_object(event.get("message")).get("usage")))
            case "message_delta":
                self._count(as_object(event.get("usage")))
                self._finish(as_object(event.get("delta")))
            case "message_stop":
                self.marked = True
            case _:
                pass  # ping, and what is not known
        return []

    def whole(self, reply: Json) -> list[Piece] | None:
        if not isinstance(reply.get("content"), list):
            return None
        pieces: list[Piece] = []
        for index, block in enumerate(as_objects(reply.get("content"))):
            pieces += self._open(index, block)
            pieces += self._close(self._blocks.pop(index))
        self._count(as_object(reply.get("usage")))
        self._finish(reply)
        return pieces

    def end(self) -> Done | None:
        if not self._stop and not (self.marked and all(_is_complete(call) for call in self._calls)):
            return None
        if self._stop == "refusal":
            why = as_text(self._details.get("explanation")) or as_text(self._details.get("category"))
            raise Refused(f"{self._model} refused to answer{f': {why}' if why else ''}.")
        self.legs.append(self._usage())
        if self._stop == "pause_turn" and len(self.legs) <= MOST_PAUSES:
            self._earlier += [_raw(block) for block in self._all]
            self.unfinished = list(self._earlier)
            self._all, self._counts, self._stop = [], {}, ""
            return Done("", None)
        finish = FINISHES.get(self._stop, "stop")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        return Done(finish, self.legs[-1] if self.legs[-1].total else None)

    # --- blocks

    def _open(self, index: int, start: Json) -> list[Piece]:
        kind = as_text(start.get("type"))
        block = _Block(start, kind, slices=[], before=(self._text, len(self._calls)))
        self._blocks[index] = block
        self._all.append(block)
        if kind == "tool_use":
            block.call = len(self._calls)
            self._calls.append(block)
            return [CallPiece(block.call, as_text(start.get("id")), as_text(start.get("name")))]
        if kind == "text":
            return self._say(block, as_text(start.get("text")))
        if kind == "thinking":
            block.signature = as_text(start.get("signature"))
            return self._think(block, as_text(start.get("thinking")))
        return []

    def _delta(self, index: int, delta: Json) -> list[Piece]:
        block = self._blocks.get(index)
        if block is None:
            return []
        match delta.get("type"):
            case "text_delta":
                return self._say(block, as_text(delta.get("text")))
            case "input_json_delta":
                piece = as_text(delta.get("partial_json"))
                block.slices.append(piece)
                return [CallPiece(block.call, args=piece)] if piece and block.call >= 0 else []
            case "thinking_delta":
                return self._think(block, as_text(delta.get("thinking")))
            case "signature_delta":
                block.signature += as_text(delta.get("signature"))
            case _:
                pass
        return []

    def _say(self, block: _Block, text: str) -> list[Piece]:
        if not text:
            return []
        block.slices.append(text)
        self._text += len(text)
        return [TextPiece(text)]

    def _think(self, block: _Block, text: str) -> list[Piece]:
        if not text:
            return []
        block.slices.append(text)
        return [ThinkingPiece(text)]

    def _close(self, block: _Block | None) -> list[Piece]:
        if block is None:
            return []
        if block.kind == "redacted_thinking" or (block.kind == "thinking" and block.signature):
            return [ThinkingOpaque(noted(_raw(block), *block.before))]
        if block.kind == "tool_use" and not block.slices and block.start.get("input"):
            # Some servers send the arguments whole, with the beginning of the call.
            block.slices.append(msgspec.json.encode(block.start["input"]).decode())
            return [CallPiece(block.call, args=block.text)]
        return []

    # --- the end

    def _count(self, usage: Json) -> None:
        """Figures of the beginning are repeated or completed at the end: the last ones hold."""
        for name in _COUNTS:
            self._counts[name] = first_count(usage, name) or self._counts.get(name, 0)

    def _usage(self) -> Usage:
        fresh, output, read, written = (self._counts.get(name, 0) for name in _COUNTS)
        if not (fresh or read or written):
            return Usage()  # nothing was reported: a request without input there is not
        return Usage(fresh, output, cache_read_tokens=read, cache_write_tokens=written)

    def _finish(self, delta: Json) -> None:
        self._stop = as_text(delta.get("stop_reason")) or self._stop
        self._details = as_object(delta.get("stop_details")) or self._details


def _is_complete(call: _Block) -> bool:
    return not call.text.strip() or is_json(call.text)


def _raw(block: _Block) -> Json:
    """The block as the server would send it whole."""
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "thinking":
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case _ if block.slices:
            return {**block.start, "input": _arguments(block.text)}
        case _:
            return block.start


def _arguments(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
