"""Clients for OpenAI's chat completions and Responses API, and every compatible server, without an SDK."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import msgspec

from crushpy.core.messages import Json
from crushpy.http.common import Timeouts, parse_url
from crushpy.llm.errors import ModelError
from crushpy.llm.http_provider import HttpProvider, Quirks, ReplyReader, StatusFallback
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import chat_tools, encoded_chat_messages
from crushpy.llm.openai.responses_reply import ResponseReader
from crushpy.llm.openai.responses_request import ResponsesQuirks, gpt_searches_tools, responses_body
from crushpy.llm.protocol import Done, Request
from crushpy.llm.vendors import OPENAI_BASE, Endpoint

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody


class ApiUrl:
    """The URL of `path` below `api_base`. A bare host gets /v1, unless the server knows nothing there."""

    def __init__(self, api_base: str, path: str) -> None:
        base, question, query = api_base.partition("?")
        base = base.rstrip("/").removesuffix(f"/{path}")
        bare = not urlsplit(base).path.strip("/")
        direct = f"{base}/{path}{question}{query}"
        self.url = f"{base}/v1/{path}{question}{query}" if bare else direct
        self._fallback = direct if bare else ""

    def switch(self, status: int | None, error: str) -> bool:
        """Switch to the URL without /v1 if this answer calls for it. Returns whether it was switched."""
        if status not in (404, 405) or not self._fallback or "model" in error.lower():
            return False
        self.url, self._fallback = self._fallback, ""
        return True


def azure_base(api_base: str, deployment: str, api_version: str) -> str:
    """The address at Azure without the path; the older API has a dated version."""
    root = api_base.rstrip("/").removesuffix("/v1").removesuffix("/openai")
    if api_version[:1].isdigit():
        return f"{root}/openai/deployments/{deployment}?api-version={api_version}"
    return f"{root}/openai/v1"


class _OpenAIProvider(HttpProvider[Quirks]):
    """Shared by both protocols. The address is given without `path`."""

    api_base = OPENAI_BASE
    path: ClassVar[str]

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts | None = None) -> None:
        super().__init__(endpoint, timeouts)
        self._api = ApiUrl(self._base, self.path)
        self._status = StatusFallback()

    def _url(self, request: Request) -> str:
        return self._api.url

    def _adapt(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        return (
            self._api.switch(failure.status, body.raw)
            or self._status.learn_refusal(request, failure, body)
            or super()._adapt(request, failure, body)
        )

    def _complete(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        return self._status.mark_moved(request, done)


class ChatQuirks(msgspec.Struct):
    """How a server differs for one model, learnt from its refusals."""

    usual_limit: bool = True
    """It knows the output limit by the name that is usual for its address."""
    usage_in_stream: bool = True
    prompt_progress: bool = True
    """On this machine it may be asked to report how much of the prompt it has read, as llama.cpp does."""


class ChatProvider(_OpenAIProvider[ChatQuirks]):
    """Chat completions, the protocol of every compatible server."""

    path = "chat/completions"
    quirks = ChatQuirks

    def _reader(self, request: Request) -> ReplyReader:
        return ChunkReader(self._text_calls(request))

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        quirks = self._quirks[request.model]
        body: Json = {
            "model": self._name(request),
            "messages": encoded_chat_messages(self._status.place_status(request), self._histories),
            "stream": True,
        }
        if quirks.usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        if self._local and quirks.prompt_progress:
            body["return_progress"] = True
        if tools := chat_tools(request):
            body["tools"] = tools
        if request.max_output_tokens:
            body[self._output_limit(quirks)] = request.max_output_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def _output_limit(self, quirks: ChatQuirks) -> str:
        """The server's name for the output limit."""
        host = parse_url(self._api.url).host
        newer = host == "api.openai.com" or host.endswith(".openai.azure.com")
        return "max_completion_tokens" if newer == quirks.usual_limit else "max_tokens"

    def _refusals(self, request: Request) -> Mapping[str, str]:
        limit = self._output_limit(self._quirks[request.model])
        limits = {"usual_limit": limit} if request.max_output_tokens else {}
        return {"usage_in_stream": "stream_options", "prompt_progress": "return_progress", **limits}


class ResponsesProvider(_OpenAIProvider[ResponsesQuirks]):
    """The Responses API, for OpenAI's reasoning models."""

    path = "responses"
    quirks = ResponsesQuirks
    refused_thinking = re.compile(
        r"invalid_encrypted_content|encrypted content.{0,80}(?:verif|decrypt|pars)", re.IGNORECASE
    )

    def _reader(self, request: Request) -> ReplyReader:
        return ResponseReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        name = self._name(request)
        quirks = self._quirks[request.model]
        if request.deferred and not (quirks.searches_tools and gpt_searches_tools(name)):
            request = msgspec.structs.replace(request, deferred=())
        return responses_body(self._status.place_status(request), name, quirks, self._histories)

    def _refusals(self, request: Request) -> Mapping[str, str]:
        return {
            "searches_tools": r"defer_loading|tool_search|namespace",
            "encrypted": r"encrypted.content|\binclude\b",
            "summary": r"reasoning\.summary|reasoning summar|must be verified",
            "reasoning": r"\breasoning\b",
            "cache_key": "prompt_cache_key",
        }
