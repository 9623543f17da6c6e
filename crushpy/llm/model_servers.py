"""Requests a server's list of models, in the server's protocol."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Json

if TYPE_CHECKING:
    from crushpy.http import Client

LIST_TIMEOUT_S = 5.0
"""For a complete list with all its pages."""
MAX_PAGES = 20
MAX_MODELS = 5_000
_MAX_RESPONSE_BYTES = 10_000_000
_PAGE_SIZE = 1_000

_WINDOWS = ("context_length", "context_window", "max_model_len", "max_context_length", "max_input_tokens")
_OUTPUTS = ("max_output_tokens", "max_completion_tokens", "max_output_length", "max_tokens")
_NOT_CHAT = re.compile(
    r"embed|whisper|(^|[-_/])tts|dall-e|moderation|rerank|transcri|realtime|(^|[-_/])(image|sora|veo|imagen|lyria)"
    r"|-image(-|$)|davinci|babbage|guard|(^|[-_/])(audio|speech|ocr|aqa)|-audio(-|$)|-ocr(-|$)",
    re.IGNORECASE,
)


class ServedModel(Data, frozen=True):
    """A model as described by its server; unknown values are None. Prices: US dollars a million tokens."""

    id: str
    context_window: int | None = None
    max_output_tokens: int | None = None
    input_cost: float | None = None
    output_cost: float | None = None
    tools: bool | None = None
    images: bool | None = None
    thinking: bool | None = None


class ListSource(Data, frozen=True):
    """A server with a list of models."""

    protocol: str
    """openai, anthropic, gemini or ollama."""
    api_base: str
    key: str | None = None
    bearer: bool = False
    """The key is sent as a bearer token."""

    def key_headers(self, header: str = "") -> dict[str, str]:
        from crushpy.llm.http_provider import key_headers

        return key_headers("" if self.bearer else header, self.key)


class ListFailed(CrushpyError):
    """The server's list of models cannot be read."""


async def ask_server(source: ListSource, timeout_s: float = LIST_TIMEOUT_S) -> tuple[ServedModel, ...]:
    """Its chat models, in its order. Raises ListFailed."""
    from crushpy.http import Client, HttpError, Timeouts

    client = Client(Timeouts(connect=timeout_s, response=timeout_s, idle=timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            found = await _LISTS[source.protocol](client, source)
    except TimeoutError:
        raise ListFailed(f"no answer within {timeout_s:g} s") from None
    except HttpError as error:
        raise ListFailed(error.message) from None
    finally:
        await client.close()
    chat = (model for model in found if model.id and not _NOT_CHAT.search(model.id))
    return tuple({model.id: model for model in chat}.values())[:MAX_MODELS]


# --- the protocols -------------------------------------------------------------------------------------


async def _openai(client: "Client", source: ListSource) -> list[ServedModel]:
    from crushpy.llm.openai.provider import ApiUrl

    address = ApiUrl(source.api_base, "models")
    headers = source.key_headers()
    try:
        answer = await _get(client, address.url, headers)
    except _ListRefused as error:
        if not address.switch(error.status, ""):
            raise
        answer = await _get(client, address.url, headers)
    return [model for entry in _entries(answer, "data", "models") if (model := _parse_model(entry))]


async def _ollama(client: "Client", source: ListSource) -> list[ServedModel]:
    root = source.api_base.rstrip("/").removesuffix("/v1").removesuffix("/api")
    try:
        answer = await _get(client, f"{root}/api/tags", source.key_headers())
    except _ListRefused as error:
        if error.status not in (404, 405):
            raise
        return await _openai(client, source)
    return [ServedModel(_text(entry, "name", "model")) for entry in _entries(answer, "models")]


async def _anthropic(client: "Client", source: ListSource) -> list[ServedModel]:
    from crushpy.llm.anthropic.provider import VERSION

    base = source.api_base.rstrip("/").removesuffix("/v1")
    headers = {"anthropic-version": VERSION, **source.key_headers("x-api-key")}
    found: list[ServedModel] = []
    after = ""
    for _ in range(MAX_PAGES):
        next_page = f"&after_id={quote(after, safe='')}" if after else ""
        answer = await _get(client, f"{base}/v1/models?limit={_PAGE_SIZE}{next_page}", headers)
        found += [model for entry in _entries(answer, "data") if (model := _parse_model(entry))]
        last = _text(cast(Json, answer), "last_id")
        if cast(Json, answer).get("has_more") is not True or last in ("", after):
            break
        after = last
    return found


async def _gemini(client: "Client", source: ListSource) -> list[ServedModel]:
    from crushpy.llm.gemini.provider import models_url

    url, headers = (
        f"{models_url(source.api_base)}?pageSize={_PAGE_SIZE}",
        source.key_headers("x-goog-api-key"),
    )
    found: list[ServedModel] = []
    token = ""
    for _ in range(MAX_PAGES):
        next_page = f"&pageToken={quote(token, safe='')}" if token else ""
        answer = await _get(client, f"{url}{next_page}", headers)
        found += [
            ServedModel(
                _text(entry, "name").removeprefix("models/"),
                _count(entry, "inputTokenLimit"),
                _count(entry, "outputTokenLimit"),
                thinking=True if entry.get("thinking") is True else None,
            )
            for entry in _entries(answer, "models")
            if "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
        ]
        next_token = _text(cast(Json, answer), "nextPageToken")
        if next_token in ("", token):
            break
        token = next_token
    return found


_LISTS = {"openai": _openai, "ollama": _ollama, "anthropic": _anthropic, "gemini": _gemini}


# --- requests ------------------------------------------------------------------------------------------


class _ListRefused(ListFailed):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def _get(client: "Client", url: str, headers: Mapping[str, str]) -> Any:
    with await client.request("GET", url, {"accept": "application/json", **headers}) as response:
        body = await response.read(_MAX_RESPONSE_BYTES)
    if response.status != 200:
        raise _ListRefused(response.status, _explain_refusal(response.status, body))
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise ListFailed("its list of models cannot be read") from None


def _explain_refusal(status: int, body: bytes) -> str:
    from crushpy.llm.error_reader import read_body

    text = read_body(body).text[:200]
    message = "it refuses the key" if status in (401, 403) else "it has no list of models"
    if status >= 500 or status == 429:
        message = "it cannot answer now"
    return f"{message} ({status}{f': {text}' if text else ''})"


# --- parsing -------------------------------------------------------------------------------------------


def _entries(answer: Any, *names: str) -> Iterator[Json]:
    """The entries of a list; some servers send the list itself."""
    listed: Any = answer
    if isinstance(answer, dict):
        holder = cast(Json, answer)
        listed = next((holder[name] for name in names if isinstance(holder.get(name), list)), None)
        if listed is None and not holder and names[0] == "models":
            listed = []  # Gemini omits an empty list
    if not isinstance(listed, list):
        raise ListFailed("its list of models cannot be read")
    for entry in cast("list[Any]", listed):
        if not isinstance(entry, dict):
            raise ListFailed("its list of models cannot be read")
        yield cast(Json, entry)


def _parse_model(entry: Json) -> ServedModel | None:
    """An entry of a list in OpenAI's form, with extensions of routers and servers; None if not for chat."""
    shape, capable = _object(entry, "architecture"), _object(entry, "capabilities")
    if "text" not in shape.get("output_modalities", ["text"]) or capable.get("completion_chat") is False:
        return None
    if entry.get("type", "model") not in ("model", "chat", "language", "code", "llm", "vlm"):
        return None
    if entry.get("supports_chat") is False:
        return None
    takes = entry.get("supported_parameters")
    top, meta = _object(entry, "top_provider"), _object(entry, "meta")
    return ServedModel(
        _text(entry, "id", "name"),
        _count(entry, *_WINDOWS) or _count(top, *_WINDOWS) or _count(meta, "n_ctx"),
        _count(entry, *_OUTPUTS) or _count(top, *_OUTPUTS),
        *_prices(_object(entry, "pricing")),
        tools="tools" in takes if isinstance(takes, list) else None,
        images="image" in shape["input_modalities"] if shape.get("input_modalities") else None,
        thinking="reasoning" in takes if isinstance(takes, list) else None,
    )


def _prices(pricing: Json) -> tuple[float | None, float | None]:
    """Routers send dollars per token as text, others dollars per million tokens as numbers."""
    if "prompt" in pricing:
        return _dollars(pricing.get("prompt"), 1_000_000), _dollars(pricing.get("completion"), 1_000_000)
    return _dollars(pricing.get("input"), 1), _dollars(pricing.get("output"), 1)


def _dollars(value: object, tokens: int) -> float | None:
    try:
        amount = float(cast(Any, value)) * tokens
    except (TypeError, ValueError):
        return None
    return round(amount, 6) if 0 <= amount <= 1_000_000 else None  # -1: variable


def _object(entry: Json, name: str) -> Json:
    value = entry.get(name)
    return cast(Json, value) if isinstance(value, dict) else {}


def _count(entry: Json, *names: str) -> int | None:
    for name in names:
        value = entry.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1_000_000_000:
            return value
    return None


def _text(entry: Json, *names: str) -> str:
    return next((str(entry[name]) for name in names if isinstance(entry.get(name), str)), "")
