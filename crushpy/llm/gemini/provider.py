"""Gemini's generateContent protocol, spoken by Google and by gateways that do as it does."""

from typing import TYPE_CHECKING, Unpack

from crushpy.core.messages import Json
from crushpy.llm.errors import BadRequest, ModelError
from crushpy.llm.gemini.reply import ContentReader
from crushpy.llm.gemini.request import GeminiQuirks, content_body
from crushpy.llm.http_provider import HttpProvider, HttpProviderOptions, ReplyReader
from crushpy.llm.protocol import Request

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody

API_BASE = "https://generativelanguage.googleapis.com"
VERSIONS = ("/v1alpha", "/v1beta", "/v1")
"""What an address may end in. The first is kept where it is given; otherwise /v1beta is spoken."""


def models_address(api_base: str) -> str:
    """Where the models are, below an address with or without its version."""
    base = api_base.rstrip("/")
    given = next((version for version in VERSIONS if base.endswith(version)), "")
    version = given if given == VERSIONS[0] else VERSIONS[1]
    return f"{base.removesuffix(given)}{version}/models"


class GeminiProvider(HttpProvider):
    """`api_base` with or without /v1beta."""

    strip = "gemini/"
    key_variable = "GEMINI_API_KEY"
    key_header = "x-goog-api-key"

    def __init__(
        self, api_base: str = API_BASE, api_key: str | None = None, **options: Unpack[HttpProviderOptions]
    ) -> None:
        super().__init__(api_key, **options)
        self._at = models_address(api_base)
        self._quirks: dict[str, GeminiQuirks] = {}

    def _url(self, request: Request) -> str:
        return f"{self._at}/{self._name(request)}:streamGenerateContent?alt=sse"

    def _reader(self, request: Request) -> ReplyReader:
        return ContentReader(request.model)

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        return content_body(request, self._name(request), self._quirks_of(request), self._histories)

    def _name(self, request: Request) -> str:
        return request.model.removeprefix(self._strip).removeprefix("models/")

    def _quirks_of(self, request: Request) -> GeminiQuirks:
        return self._quirks.setdefault(request.model, GeminiQuirks())

    def _learns(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        if not isinstance(failure, BadRequest) or failure.status != 400:
            return False
        quirks, said = self._quirks_of(request), body.raw.lower()
        if not quirks.thinking or "thinking" not in said:
            return False
        quirks.thinking = False
        return True
