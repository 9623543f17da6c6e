"""The chat wire: talks to any OpenAI-compatible server without an SDK, so that it starts and streams fast."""

from typing import TYPE_CHECKING, Unpack

import msgspec

from crushpy.core.messages import Json
from crushpy.http import parse_url
from crushpy.llm.errors import BadRequest, ModelError
from crushpy.llm.http_provider import HttpProvider, HttpProviderOptions, ReplyReader
from crushpy.llm.openai.address import Address
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import chat_tools, encoded_chat_messages
from crushpy.llm.protocol import Done, Request
from crushpy.llm.status_fallback import StatusFallback

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody


class _Habits(msgspec.Struct):
    """What a server turned out to want, per model: found out once, by its refusal."""

    output_limit: str
    """max_tokens or max_completion_tokens."""
    limit_switched: bool = False
    usage_in_stream: bool = True


class ChatProvider(HttpProvider):
    """`api_base` is what comes before /chat/completions."""

    strip = "openai/"
    key_variable = "OPENAI_API_KEY"

    def __init__(
        self, api_base: str, api_key: str | None = None, **options: Unpack[HttpProviderOptions]
    ) -> None:
        super().__init__(api_key, **options)
        self._address = Address(api_base, "chat/completions")
        self._habits: dict[str, _Habits] = {}
        self._status = StatusFallback()

    def _url(self, request: Request) -> str:
        return self._address.url

    def _reader(self, request: Request) -> ReplyReader:
        return ChunkReader()

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        habits = self._habits_of(request)
        body: Json = {
            "model": request.model.removeprefix(self._strip),
            "messages": encoded_chat_messages(self._status.placed(request), self._histories),
            "stream": True,
        }
        if habits.usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        if tools := chat_tools(request):
            body["tools"] = tools
        if request.max_output_tokens:
            body[habits.output_limit] = request.max_output_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        return body

    def _habits_of(self, request: Request) -> _Habits:
        if request.model not in self._habits:
            host = parse_url(self._address.url).host
            newer = host == "api.openai.com" or host.endswith(".openai.azure.com")
            self._habits[request.model] = _Habits("max_completion_tokens" if newer else "max_tokens")
        return self._habits[request.model]

    def _learns(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        habits = self._habits_of(request)
        if self._address.learns(failure.status, body.raw):
            return True
        if self._status.learn(request, failure, failure.status or 0, body):
            return True
        if isinstance(failure, BadRequest) and _refuses_usage(habits, body):
            habits.usage_in_stream = False
        elif isinstance(failure, BadRequest) and request.max_output_tokens and _other_limit(habits, body):
            habits.output_limit, habits.limit_switched = _other_limit(habits, body), True
        else:
            return False
        return True

    def _closing(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        return self._status.mark(request, done)


def _refuses_usage(habits: _Habits, body: "ErrorBody") -> bool:
    return habits.usage_in_stream and "stream_options" in body.raw


def _other_limit(habits: _Habits, body: "ErrorBody") -> str:
    """The other name for the output limit, where the server refuses the one in use by name."""
    if habits.limit_switched:
        return ""
    if habits.output_limit == "max_tokens":
        return "max_completion_tokens" if "max_tokens" in body.raw else ""
    return "max_tokens" if "max_completion_tokens" in body.raw else ""
