"""Reads a reply in OpenAI's Responses format, event by event. Pure."""

import msgspec

from crushpy.core.messages import Json, Usage
from crushpy.llm.errors import Refused
from crushpy.llm.http_provider import ReplyReader, Reported
from crushpy.llm.opaque_parts import SEARCH_COST, cite, record_position
from crushpy.llm.openai.chat_reply import read_usage
from crushpy.llm.openai.responses_request import NAMESPACE, PHASE, TOOL_SEARCH_ITEMS
from crushpy.llm.protocol import CallPiece, Done, Piece, ThinkingOpaque, ThinkingPiece
from crushpy.util.read_json import as_index, as_object, as_objects, as_text


class _Item(msgspec.Struct):
    """An item of the reply as received so far."""

    kind: str
    call: int = -1
    """Our index of a call."""
    streamed: bool = False
    """A piece of it was passed on."""
    position: tuple[int, int] = (0, 0)
    """Characters of text and number of calls before it."""


class ResponseReader(ReplyReader):
    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._incomplete_reason = ""
        self._usage: Usage | None = None
        self._items: dict[int, _Item] = {}
        """By the server's index."""
        self._calls = 0
        self._texts: list[str] = []
        self._searches = 0

    def feed(self, event: Json) -> list[Piece]:
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._add_text(self._item(event, "message"), as_text(event.get("delta")))
            case "response.function_call_arguments.delta":
                item = self._items.get(as_index(event.get("output_index")))
                return self._add_arguments(item, as_text(event.get("delta")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._add_thinking(self._item(event, "reasoning"), as_text(event.get("delta")))
            case "response.reasoning_summary_part.added":
                return [ThinkingPiece("\n\n")] if self._item(event, "reasoning").streamed else []
            case "response.output_item.added":
                return self._open(as_index(event.get("output_index")), as_object(event.get("item")))
            case "response.output_item.done":
                return self._close(as_index(event.get("output_index")), as_object(event.get("item")))
            case "response.output_text.annotation.added":
                return self._cite(self._item(event, "message"), as_object(event.get("annotation")))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self._finish(as_object(event.get("response")))
            case "error":
                raise Reported({"error": event})
            case _:
                return []  # created, in progress, start and end of parts, and unknown events

    def read_whole(self, reply: Json) -> list[Piece] | None:
        return self._finish(reply) if isinstance(reply.get("output"), list) else None

    def end(self) -> Done | None:
        if not self.finish_reason:
            return None
        if self.finish_reason == "incomplete":
            if self._incomplete_reason == "content_filter":
                raise Refused(f"{self._model} gave no answer: the content filter stopped it.")
            return Done("length", self._usage, self._searches * SEARCH_COST)
        return Done("tool_calls" if self._calls else "stop", self._usage, self._searches * SEARCH_COST)

    # --- items

    def _item(self, event: Json, kind: str) -> _Item:
        """The item of an event; some servers do not announce items."""
        index = as_index(event.get("output_index"))
        if index not in self._items:
            self._items[index] = _Item(kind, position=(self._text_chars, self._calls))
        return self._items[index]

    def _open(self, index: int, given: Json) -> list[Piece]:
        item = _Item(as_text(given.get("type")), position=(self._text_chars, self._calls))
        self._items[index] = item
        self._searches += item.kind == "web_search_call"
        if item.kind == "message" and (phase := as_text(given.get("phase"))):
            return [ThinkingOpaque(record_position({"type": PHASE, "phase": phase}, *item.position))]
        if item.kind != "function_call":
            return []
        item.call = self._calls
        self._calls += 1
        namespace = as_text(given.get(NAMESPACE))
        opaque = {NAMESPACE: namespace} if namespace else None
        call_id, name = as_text(given.get("call_id")), as_text(given.get("name"))
        return [CallPiece(item.call, call_id, name, opaque=opaque)]

    def _close(self, index: int, given: Json) -> list[Piece]:
        """The pieces of a complete item, without those that were already streamed."""
        pieces = [] if index in self._items else self._open(index, given)
        item = self._items[index]
        match item.kind:
            case "reasoning":
                pieces += [] if item.streamed else self._add_thinking(item, _summary(given))
                if given.get("encrypted_content"):
                    block = {key: value for key, value in given.items() if key != "status" and value}
                    block.setdefault("summary", [])
                    pieces.append(ThinkingOpaque(record_position(block, *item.position)))
            case kind if kind in TOOL_SEARCH_ITEMS:
                block = {key: value for key, value in given.items() if value is not None}
                pieces.append(ThinkingOpaque(record_position(block, *item.position)))
            case "function_call" if not item.streamed:
                pieces += self._add_arguments(item, as_text(given.get("arguments")))
            case "message" if not item.streamed:
                parts = as_objects(given.get("content"))
                texts = [as_text(part.get("text")) or as_text(part.get("refusal")) for part in parts]
                pieces += self._add_text(item, "".join(texts))
                for source in (each for part in parts for each in as_objects(part.get("annotations"))):
                    pieces += self._cite(item, source)
            case _:
                pass
        return pieces

    def _cite(self, item: _Item, source: Json) -> list[Piece]:
        """A source of a web search, unless the text itself names it, as it mostly does."""
        if as_text(source.get("url")) in "".join(self._texts):
            return []
        return self._add_text(item, cite(source, self._cited))

    def _add_text(self, item: _Item, text: str) -> list[Piece]:
        item.streamed = item.streamed or bool(text)
        self._texts.append(text)
        return self._say(text)

    def _add_thinking(self, item: _Item, text: str) -> list[Piece]:
        item.streamed = item.streamed or bool(text)
        return [ThinkingPiece(text)] if text else []

    def _add_arguments(self, item: _Item | None, args: str) -> list[Piece]:
        if item is None or item.call < 0 or not args:
            return []
        item.streamed = True
        return [CallPiece(item.call, args=args)]

    # --- the end

    def _finish(self, response: Json) -> list[Piece]:
        if error := as_object(response.get("error")):
            raise Reported({"error": error})
        self.finish_reason = as_text(response.get("status")) or "completed"
        if self.finish_reason in ("failed", "cancelled"):
            raise Reported({"error": {"message": f"the reply {self.finish_reason}", "code": 500}})
        self.ended = True
        self._incomplete_reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        if usage := as_object(response.get("usage")):
            used = read_usage(usage)
            self._usage = used if used.total > used.output_tokens else None
        pieces: list[Piece] = []
        if not self._items:
            for index, item in enumerate(as_objects(response.get("output"))):
                pieces += self._close(index, item)
        return pieces


def _summary(reasoning: Json) -> str:
    parts = as_objects(reasoning.get("summary")) or as_objects(reasoning.get("content"))
    return "\n\n".join(as_text(part.get("text")) for part in parts)
