"""Client for Gemini's generateContent protocol, for Google and compatible gateways."""

from collections.abc import Mapping

from crushpy.core.messages import Json
from crushpy.llm.gemini.reply import ContentReader
from crushpy.llm.gemini.request import GeminiQuirks, content_body
from crushpy.llm.http_provider import HttpProvider, ReplyReader
from crushpy.llm.protocol import Request
from crushpy.llm.vendors import BY_NAME

VERSIONS = ("/v1alpha", "/v1beta", "/v1")
"""Suffixes of an address. The first is kept if given; otherwise /v1beta is used."""


def models_url(api_base: str) -> str:
    """The URL of the models, below an address with or without a version."""
    base = api_base.rstrip("/")
    given = next((version for version in VERSIONS if base.endswith(version)), "")
    version = given if given == VERSIONS[0] else VERSIONS[1]
    return f"{base.removesuffix(given)}{version}/models"


class GeminiProvider(HttpProvider[GeminiQuirks]):
    """The address may end in /v1beta or not."""

    quirks = GeminiQuirks
    api_base = BY_NAME["gemini"].usual_base
    key_header = "x-goog-api-key"

    def _url(self, request: Request) -> str:
        return f"{models_url(self._base)}/{self._name(request)}:streamGenerateContent?alt=sse"

    def _reader(self, request: Request) -> ReplyReader:
        return ContentReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        return content_body(request, self._name(request), self._quirks[request.model], self._histories)

    def _name(self, request: Request) -> str:
        return super()._name(request).removeprefix("models/")

    def _refusals(self, request: Request) -> Mapping[str, str]:
        return {"thinking": "thinking"}
