"""Anthropic's Messages protocol, spoken by Anthropic and by gateways and servers that do as it does."""

import re
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
BETWEEN_CALLS = "interleaved-thinking-2025-05-14"
"""Lets a model with a budget think between its calls as well; the others do so anyway."""

_MOST_OUTPUT = re.compile(r"max_tokens: \d+ > (\d+)")


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
        self._at = f"{api_base.rstrip('/').removesuffix('/messages').removesuffix('/v1')}/v1/messages"
        self._quirks: dict[str, AnthropicQuirks] = {}

    def _url(self, request: Request) -> str:
        return self._at

    def _reader(self, request: Request) -> ReplyReader:
        return MessageReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        return messages_body(
            request,
            request.model.removeprefix(self._strip),
            self._quirks_of(request),
            unfinished,
            self._histories,
        )

    def _more_headers(self, request: Request, body: Json) -> dict[str, str]:
        budgeted = body.get("thinking", {}).get("type") == "enabled" and request.tools
        return {"anthropic-beta": BETWEEN_CALLS} if budgeted else {}

    def _quirks_of(self, request: Request) -> AnthropicQuirks:
        return self._quirks.setdefault(request.model, AnthropicQuirks())

    def _learns(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        if not isinstance(failure, BadRequest) or failure.status not in (400, 422):
            return False
        quirks, said = self._quirks_of(request), body.raw
        most = _MOST_OUTPUT.search(said)
        if most and quirks.most_output is None:
            quirks.most_output = int(most[1])
        elif quirks.eager and "eager_input_streaming" in said:
            quirks.eager = False
        elif quirks.effort and re.search(r"output_config|effort", said):
            quirks.effort = False
        elif quirks.thinking and "thinking" in said:
            quirks.thinking = False
        else:
            return False
        return True

    def _closing(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        """Of a turn that paused the last request says how full the window is; the cost is that of all."""
        if not isinstance(reader, MessageReader) or len(reader.legs) < 2 or done.usage is None:
            return done
        from crushpy.llm.catalog import cost, lookup

        info = lookup(request.model)
        whole = sum(cost(info, leg) for leg in reader.legs)
        return msgspec.structs.replace(done, usage=msgspec.structs.replace(done.usage, cost=whole))
