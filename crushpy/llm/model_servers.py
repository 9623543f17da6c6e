"""Requests a server's list of models, or the description of one, in the server's protocol."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Json
from crushpy.llm import vendors
from crushpy.llm.vendors import Endpoint
from crushpy.util.lazy_pattern import lazy_pattern
from crushpy.util.read_json import as_object, as_objects, as_text, first_count

if TYPE_CHECKING:
    from crushpy.http.client import Client

LIST_TIMEOUT_S = 5.0
"""For a complete list."""
MAX_MODELS = 5_000
_MAX_RESPONSE_BYTES = 10_000_000
_PAGE_SIZE = 1_000
"""The largest that vendors allow; their lists are shorter."""

DEFAULT_NUM_CTX = 32_768
"""The window for Ollama to load a model with, if neither the user nor the model's author chose one. A larger
one often does not fit in memory."""
TOOLS_SINCE = (0, 4, 6)
"""The first version of Ollama that streams tool calls."""
MAX_SHOWN = 200
"""Models of Ollama in a list: each costs a request."""

_ABILITIES = ("tools", "vision", "thinking")
_WINDOW_PATHS = ("/api/v0/models", "/api/ps", "/props")
"""Where LM Studio, Ollama and llama.cpp report the windows of loaded models."""
_WINDOWS = (
    *("loaded_context_length", "context_length", "context_window", "max_model_len"),
    *("max_context_length", "max_input_tokens"),
)
_OUTPUTS = ("max_output_tokens", "max_completion_tokens", "max_output_length", "max_tokens")
_CHAT_TYPES = ("model", "chat", "language", "code", "llm", "vlm")
_NOT_CHAT = lazy_pattern(
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
    slots: int | None = None
    """How many requests its server answers at a time."""


class ListFailed(CrushpyError):
    """The server's list of models cannot be read. `status`: that of its answer, if it is an error."""

    def __init__(self, message: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


def list_address(endpoint: Endpoint) -> tuple[str, str]:
    """The protocol and the address of a provider's list of models; empty if none is known."""
    vendor = vendors.vendor_of(endpoint.vendor)
    base = endpoint.api_base or vendor.usual_base
    if endpoint.protocol in ("anthropic", "gemini"):
        return endpoint.protocol, base
    if endpoint.protocol in ("chat", "responses"):
        return "openai", base
    if endpoint.vendor in ("anthropic", "gemini"):
        return endpoint.vendor, base
    if vendor.own_protocol:
        return "", ""
    return "ollama" if endpoint.vendor.startswith("ollama") else "openai", base


async def ask_server(endpoint: Endpoint, timeout_s: float = LIST_TIMEOUT_S) -> tuple[ServedModel, ...]:
    """Its chat models, in its order. Raises ListFailed."""
    protocol, base = list_address(endpoint)
    if not protocol:
        raise ListFailed("it has no known list of models")
    async with _connected(endpoint, base, timeout_s) as server:
        found = await _LISTS[protocol](server)
    chat = (model for model in found if model.id and not _NOT_CHAT.search(model.id))
    return tuple({model.id: model for model in chat}.values())[:MAX_MODELS]


async def show_ollama(
    endpoint: Endpoint, window: int | None = None, timeout_s: float = LIST_TIMEOUT_S
) -> ServedModel:
    """The model as Ollama describes it, with the window to load it with: `window` if given, else a suitable
    one, and never more than the model supports. Raises ListFailed, with status 404 if Ollama does not have
    it."""
    async with _connected(endpoint, endpoint.api_base or vendors.OLLAMA_BASE, timeout_s) as server:
        loaded = await _loaded_windows(server, ("/api/ps",))
        return await _show_ollama(server, endpoint.served_name, loaded, window)


async def ask_slots(endpoint: Endpoint, timeout_s: float = LIST_TIMEOUT_S) -> int | None:
    """How many requests llama.cpp answers at a time; None if it does not say. Raises ListFailed."""
    async with _connected(endpoint, endpoint.api_base, timeout_s) as server:
        return _count(as_object(await server.get(f"{server.root}/props")), "total_slots")


@asynccontextmanager
async def _connected(endpoint: Endpoint, base: str, timeout_s: float) -> "AsyncGenerator[_Server]":
    """Its body asks the server, for `timeout_s` at most. Raises ListFailed."""
    from crushpy.http.client import Client
    from crushpy.http.common import HttpError, Timeouts

    client = Client(Timeouts(connect=timeout_s, response=timeout_s, idle=timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            yield _Server(client, endpoint, base)
    except TimeoutError:
        raise ListFailed(f"no answer within {timeout_s:g} s") from None
    except HttpError as error:
        raise ListFailed(error.message) from None
    finally:
        await client.close()


class _Server:
    """A server that is asked through one client."""

    def __init__(self, client: "Client", endpoint: Endpoint, base: str) -> None:
        self._client, self.endpoint, self.base = client, endpoint, base
        self.root = vendors.server_root(base)
        """Of a local server."""

    async def get(
        self, url: str, query: bytes = b"", *, key_header: str = "", headers: Mapping[str, str] | None = None
    ) -> Any:
        """The answer of a URL; `query` is sent in the body. `key_header`: as for `http_provider.key_headers`,
        unless the key is a bearer token."""
        from crushpy.llm.http_provider import key_headers

        key = key_headers("" if self.endpoint.bearer else key_header, self.endpoint.key)
        sent = {"accept": "application/json", "content-type": "application/json", **(headers or {}), **key}
        with await self._client.request("POST" if query else "GET", url, sent, query) as response:
            body = await response.read(_MAX_RESPONSE_BYTES)
        if (status := response.status) != 200:
            from crushpy.llm.error_reader import read_body

            text = read_body(body).text[:200]
            message = "it refuses the key" if status in (401, 403) else "it has no list of models"
            if status >= 500 or status == 429:
                message = "it cannot answer now"
            raise ListFailed(f"{message} ({status}{f': {text}' if text else ''})", status=status)
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise ListFailed("its list of models cannot be read") from None


def same_model(one: str, other: str) -> bool:
    """Whether two names of one server mean the same model: Ollama's default tag may be omitted."""
    return one.removesuffix(":latest") == other.removesuffix(":latest")


# --- the protocols -------------------------------------------------------------------------------------


async def _openai(server: _Server) -> list[ServedModel]:
    from crushpy.llm.openai.provider import ApiUrl

    address = ApiUrl(server.base, "models")
    try:
        answer = await server.get(address.url)
    except ListFailed as error:
        if not address.switch(error.status, ""):
            raise
        answer = await server.get(address.url)
    found = [model for entry in _entries(answer, "data", "models") if (model := _parse_model(entry))]
    if not server.endpoint.own_server or all(model.context_window for model in found):
        return found
    # A server of the user's own that lists no windows is asked as LM Studio, llama.cpp and Ollama.
    windows = await _loaded_windows(server)

    def window_of(model: ServedModel) -> int | None:
        known = (window for name, window in windows.items() if same_model(name, model.id))
        return model.context_window or next(known, windows.get(""))

    return [msgspec.structs.replace(model, context_window=window_of(model)) for model in found]


async def _loaded_windows(server: _Server, paths: tuple[str, ...] = _WINDOW_PATHS) -> dict[str, int]:
    """The windows of loaded models by name, as LM Studio and Ollama report them; "": as llama.cpp does, for
    its only model."""
    from crushpy.http.common import HttpError

    async def ask(path: str) -> Json:
        try:
            return as_object(await server.get(f"{server.root}{path}"))
        except (ListFailed, HttpError):
            return {}

    found: dict[str, int | None] = {}
    for answer in await asyncio.gather(*map(ask, paths)):
        for entry in (*as_objects(answer.get("data")), *as_objects(answer.get("models"))):
            found[_text(entry, "id", "name", "model")] = _count(entry, *_WINDOWS)
        found[""] = found.get("") or _count(as_object(answer.get("default_generation_settings")), "n_ctx")
    return {name: window for name, window in found.items() if window}


async def _ollama(server: _Server) -> list[ServedModel]:
    try:
        answer = await server.get(f"{server.root}/api/tags")
    except ListFailed as error:
        if error.status not in (404, 405):
            raise
        return await _openai(server)
    loaded = await _loaded_windows(server, ("/api/ps",))

    async def show(name: str) -> ServedModel:
        try:
            return await _show_ollama(server, name, loaded)
        except ListFailed:
            return ServedModel(name)

    names = [_text(entry, "name", "model") for entry in _entries(answer, "models")][:MAX_SHOWN]
    return list(await asyncio.gather(*map(show, names)))


async def _show_ollama(
    server: _Server, name: str, loaded: Mapping[str, int], window: int | None = None
) -> ServedModel:
    body = msgspec.json.encode({"model": name, "name": name})  # old versions read `name`
    shown = as_object(await server.get(f"{server.root}/api/show", body))
    if not ("details" in shown or "model_info" in shown):
        raise ListFailed("it does not answer like Ollama")
    facts = as_object(shown.get("model_info"))
    limit = next((_count(facts, key) for key in facts if key.endswith(".context_length")), None)
    chosen = re.search(r"^num_ctx +(\d+)$", _text(shown, "parameters"), re.MULTILINE)
    usual = max(DEFAULT_NUM_CTX, next((loaded[key] for key in loaded if same_model(key, name)), 0))
    if shown.get("remote_host") and limit:  # runs in Ollama's cloud, always with its full window
        usual = limit
    window = window or (int(chosen[1]) if chosen else usual)
    able = shown.get("capabilities")
    if not isinstance(able, list):
        await _require_tool_calls(server)
        able = None
    tools, images, thinking = (None if able is None else word in able for word in _ABILITIES)
    return ServedModel(name, min(window, limit or window), tools=tools, images=images, thinking=thinking)


async def _require_tool_calls(server: _Server) -> None:
    """Raise ListFailed if this version of Ollama, which does not list abilities, cannot stream tool calls."""
    try:
        version = _text(as_object(await server.get(f"{server.root}/api/version")), "version")
    except ListFailed:
        return  # another program that speaks Ollama's protocol
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < TOOLS_SINCE:
        needed = ".".join(map(str, TOOLS_SINCE))
        raise ListFailed(
            f"its version {version} cannot call tools",
            f"Update Ollama to {needed} or later, or choose another model with -m.",
        )


async def _anthropic(server: _Server) -> list[ServedModel]:
    from crushpy.llm.anthropic.provider import VERSION

    url = f"{server.base.rstrip('/').removesuffix('/v1')}/v1/models?limit={_PAGE_SIZE}"
    answer = await server.get(url, key_header="x-api-key", headers={"anthropic-version": VERSION})
    return [model for entry in _entries(answer, "data") if (model := _parse_model(entry))]


async def _gemini(server: _Server) -> list[ServedModel]:
    from crushpy.llm.gemini.provider import models_url

    url = f"{models_url(server.base)}?pageSize={_PAGE_SIZE}"
    answer = await server.get(url, key_header="x-goog-api-key")
    return [
        ServedModel(
            _text(entry, "name").removeprefix("models/"),
            _count(entry, "inputTokenLimit"),
            _count(entry, "outputTokenLimit"),
            thinking=True if entry.get("thinking") is True else None,
        )
        for entry in _entries(answer, "models")
        if "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
    ]


_LISTS = {"openai": _openai, "ollama": _ollama, "anthropic": _anthropic, "gemini": _gemini}


# --- parsing -------------------------------------------------------------------------------------------


def _entries(answer: Any, *names: str) -> list[Json]:
    """The entries of a list; some servers send the list itself."""
    listed: Any = answer
    if isinstance(answer, dict):
        holder = cast(Json, answer)
        listed = next((holder[name] for name in names if isinstance(holder.get(name), list)), None)
        if listed is None and not holder and names[0] == "models":
            listed = []  # Gemini omits an empty list
    entries = as_objects(listed)
    if not isinstance(listed, list) or len(entries) < len(cast("list[Any]", listed)):
        raise ListFailed("its list of models cannot be read")
    return entries


def _parse_model(entry: Json) -> ServedModel | None:
    """An entry of a list in OpenAI's form, with extensions of routers and servers; None if not for chat."""
    shape, capable = as_object(entry.get("architecture")), as_object(entry.get("capabilities"))
    if "text" not in shape.get("output_modalities", ["text"]) or capable.get("completion_chat") is False:
        return None
    if entry.get("type", "model") not in _CHAT_TYPES or entry.get("supports_chat") is False:
        return None
    takes = entry.get("supported_parameters")
    top, meta = as_object(entry.get("top_provider")), as_object(entry.get("meta"))
    return ServedModel(
        _text(entry, "id", "name"),
        _count(entry, *_WINDOWS) or _count(top, *_WINDOWS) or _count(meta, "n_ctx"),
        _count(entry, *_OUTPUTS) or _count(top, *_OUTPUTS),
        *_prices(as_object(entry.get("pricing"))),
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


def _count(entry: Json, *names: str) -> int | None:
    return first_count(entry, *names) or None


def _text(entry: Json, *names: str) -> str:
    return next(filter(None, (as_text(entry.get(name)) for name in names)), "")
