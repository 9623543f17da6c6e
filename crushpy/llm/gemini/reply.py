"""Reads a reply in Gemini's generateContent format, chunk by chunk. Pure."""

import msgspec

from crushpy.core.messages import Json, Usage
from crushpy.llm.errors import CutStream, Refused
from crushpy.llm.gemini.request import SIGNED_TEXT, stored_signature
from crushpy.llm.http_provider import ReplyReader
from crushpy.llm.opaque_parts import GEMINI_SEARCH_COST, cite
from crushpy.llm.protocol import CallPiece, Done, Piece, ThinkingOpaque, ThinkingPiece
from crushpy.util.read_json import as_object, as_objects, as_text, first_count

BLOCKED = {
    "SAFETY": "its safety filter stopped the reply",
    "RECITATION": "the reply would have repeated copyrighted text",
    "LANGUAGE": "the language is not supported",
    "BLOCKLIST": "the reply contained a blocked word",
    "PROHIBITED_CONTENT": "the content is prohibited",
    "SPII": "the reply contained personal data",
    "IMAGE_SAFETY": "its safety filter stopped an image",
}
MALFORMED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
"""The server could not parse the model's output: a retry may succeed."""


class ContentReader(ReplyReader):
    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._finish_message = ""
        self._blocked = ""
        self._usage: Usage | None = None
        self._calls = 0
        self._search_cost = 0.0

    def feed(self, event: Json) -> list[Piece]:
        if usage := as_object(event.get("usageMetadata")):
            self._usage = _usage(usage)
        if blocked := as_text(as_object(event.get("promptFeedback")).get("blockReason")):
            self.finish_reason = self._blocked = blocked
        candidates = as_objects(event.get("candidates"))
        if not candidates:
            return []
        candidate = candidates[0]
        pieces: list[Piece] = []
        for part in as_objects(as_object(candidate.get("content")).get("parts")):
            pieces += self._part(part)
        pieces += self._sources(as_object(candidate.get("groundingMetadata")))
        if reason := as_text(candidate.get("finishReason")):
            self.finish_reason, self._finish_message = reason, as_text(candidate.get("finishMessage"))
        return pieces

    def read_whole(self, reply: Json) -> list[Piece] | None:
        return self.feed(reply) if "candidates" in reply or "promptFeedback" in reply else None

    def end(self) -> Done | None:
        if self._blocked:
            raise Refused(f"{self._model} refused the request: it was blocked as {self._blocked}.")
        if not self.finish_reason:
            return None
        detail = f" ({self._finish_message})" if self._finish_message else ""
        if reason := BLOCKED.get(self.finish_reason):
            raise Refused(f"{self._model} gave no answer: {reason}{detail}.")
        if self.finish_reason in MALFORMED:
            raise CutStream(
                f"{self._model} wrote a call that cannot be parsed ({self.finish_reason}){detail}."
            )
        if self.finish_reason == "MAX_TOKENS":
            return Done("length", self._usage, self._search_cost)
        return Done("tool_calls" if self._calls else "stop", self._usage, self._search_cost)

    def _sources(self, grounding: Json) -> list[Piece]:
        """The pages of a web search, which the server names at the end."""
        queries: list[str] = grounding.get("webSearchQueries") or []
        self._search_cost += GEMINI_SEARCH_COST * len(queries)
        pages = [as_object(each.get("web")) for each in as_objects(grounding.get("groundingChunks"))]
        return self._say("".join([cite(page, self._cited, "uri") for page in pages]))

    def _part(self, part: Json) -> list[Piece]:
        signature = as_text(part.get("thoughtSignature"))
        if call := as_object(part.get("functionCall")):
            args = call.get("args")
            self._calls += 1
            return [
                CallPiece(
                    self._calls - 1,
                    as_text(call.get("id")),
                    as_text(call.get("name")),
                    msgspec.json.encode(args).decode() if args else "",
                    stored_signature(signature) if signature else None,
                )
            ]
        text = as_text(part.get("text"))
        if part.get("thought") is True:
            return [ThinkingPiece(text)] if text else []
        start, pieces = self._text_chars, self._say(text)
        if signature:
            mark = {"type": SIGNED_TEXT, "signature": signature, "from": start, "to": self._text_chars}
            pieces.append(ThinkingOpaque(mark))
        return pieces


def _usage(usage: Json) -> Usage | None:
    """Cached tokens are not counted as input; thinking counts as output."""
    prompt = first_count(usage, "promptTokenCount")
    if not prompt:
        return None
    read = min(prompt, first_count(usage, "cachedContentTokenCount"))
    answer, thoughts = (first_count(usage, f"{kind}TokenCount") for kind in ("candidates", "thoughts"))
    if prompt + answer == first_count(usage, "totalTokenCount"):
        thoughts = 0  # some servers include them in the answer
    tools = first_count(usage, "toolUsePromptTokenCount")
    return Usage(prompt - read + tools, answer + thoughts, cache_read_tokens=read)
