"""OpenAI's Responses protocol: the one in which a model's reasoning survives its tool calls."""

import re
from typing import TYPE_CHECKING, Unpack

from crushpy.core.messages import Json
from crushpy.llm.errors import BadRequest, ModelError
from crushpy.llm.http_provider import HttpProvider, HttpProviderOptions, ReplyReader
from crushpy.llm.openai.address import Address
from crushpy.llm.openai.responses_reply import ResponseReader
from crushpy.llm.openai.responses_request import ResponsesQuirks, responses_body
from crushpy.llm.protocol import Done, Request
from crushpy.llm.status_fallback import StatusFallback

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody

_LESSONS = (
    ("signed", re.compile(r"invalid_encrypted_content|encrypted content.{0,80}(?:verif|decrypt|pars)", re.I)),
    ("encrypted", re.compile(r"encrypted.content|\binclude\b", re.I)),
    ("summary", re.compile(r"reasoning\.summary|reasoning summar|must be verified", re.I)),
    ("reasoning", re.compile(r"\breasoning\b", re.I)),
    ("cache_key", re.compile(r"prompt_cache_key", re.I)),
)
"""Which habit a refusal is about, by its words."""


class ResponsesProvider(HttpProvider):
    """`api_base` is what comes before /responses."""

    strip = "openai/"
    key_variable = "OPENAI_API_KEY"

    def __init__(
        self, api_base: str, api_key: str | None = None, **options: Unpack[HttpProviderOptions]
    ) -> None:
        super().__init__(api_key, **options)
        self._address = Address(api_base, "responses")
        self._habits: dict[str, ResponsesQuirks] = {}
        self._status = StatusFallback()

    def _url(self, request: Request) -> str:
        return self._address.url

    def _reader(self, request: Request) -> ReplyReader:
        return ResponseReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        name = request.model.removeprefix(self._strip)
        return responses_body(self._status.placed(request), name, self._habits_of(request), self._histories)

    def _habits_of(self, request: Request) -> ResponsesQuirks:
        return self._habits.setdefault(request.model, ResponsesQuirks())

    def _learns(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        if self._address.learns(failure.status, body.raw):
            return True
        if self._status.learn(request, failure, failure.status or 0, body):
            return True
        if not isinstance(failure, BadRequest) or failure.status not in (400, 422):
            return False
        habits = self._habits_of(request)
        for name, words in _LESSONS:
            if getattr(habits, name) and words.search(body.raw):
                setattr(habits, name, False)
                return True
        return False

    def _closing(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        return self._status.mark(request, done)
