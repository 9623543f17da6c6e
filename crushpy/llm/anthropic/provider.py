"""Client for Anthropic's Messages protocol, for Anthropic and compatible gateways and servers."""

import re
from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar, Unpack

import msgspec

from crushpy.core.messages import Json
from crushpy.llm.anthropic.reply import MessageReader
from crushpy.llm.anthropic.request import AnthropicQuirks, messages_body
from crushpy.llm.errors import BadRequest, ModelError
from crushpy.llm.http_provider import HttpProvider, HttpProviderOptions, ReplyReader
from crushpy.llm.protocol import Done, Request

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody

API_BASE = "https://api.anthropic.com"
VERSION = "2023-06-01"
INTERLEAVED_THINKING = "interleaved-thinking-2025-05-14"
"""Lets a model with a thinking budget think between its calls; others do so by default."""

_MAX_OUTPUT = re.compile(r"max_tokens: \d+ > (\d+)")


class AnthropicProvider(HttpProvider):
    """`api_base` with or without /v1."""

    strip = "anthropic/"
    key_variable = "ANTHROPIC_API_KEY"
    key_header = "x-api-key"
    headers: ClassVar[dict[str, str]] = {"anthropic-version": VERSION}

    def __init__(
        self, api_base: str = API_BASE, api_key: str | None = None, **options: Unpack[HttpProviderOptions]
    ) -> None:
        super().__init__(api_key, **options)
        self._messages_url = (
            f"{api_base.rstrip('/').removesuffix('/messages').removesuffix('/v1')}/v1/messages"
        )
        self._quirks = defaultdict[str, AnthropicQuirks](AnthropicQuirks)

    def _url(self, request: Request) -> str:
        return self._messages_url

    def _reader(self, request: Request) -> ReplyReader:
        return MessageReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        name = request.model.removeprefix(self._strip)
        return messages_body(request, name, self._quirks[request.model], unfinished, self._histories)

    def _request_headers(self, request: Request, body: Json) -> dict[str, str]:
        has_budget = body.get("thinking", {}).get("type") == "enabled" and request.tools
        return {"anthropic-beta": INTERLEAVED_THINKING} if has_budget else {}

    def _adapt(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        if not isinstance(failure, BadRequest) or failure.status not in (400, 422):
            return False
        quirks, error = self._quirks[request.model], body.raw
        limit = _MAX_OUTPUT.search(error)
        if limit and quirks.max_output is None:
            quirks.max_output = int(limit[1])
        elif quirks.eager and "eager_input_streaming" in error:
            quirks.eager = False
        elif quirks.effort and re.search(r"output_config|effort", error):
            quirks.effort = False
        elif quirks.thinking and "thinking" in error:
            quirks.thinking = False
        else:
            return False
        return True

    def _complete(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        """For a paused turn the last request's usage is the size of the context; the cost is that of all."""
        if not isinstance(reader, MessageReader) or len(reader.usages) < 2 or done.usage is None:
            return done
        from crushpy.llm.catalog import cost, lookup

        info = lookup(request.model)
        total = sum(cost(info, usage) for usage in reader.usages)
        return msgspec.structs.replace(done, usage=msgspec.structs.replace(done.usage, cost=total))
