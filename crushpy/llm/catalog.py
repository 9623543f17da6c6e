"""The catalog of models: windows, output limits and prices, from litellm's data file.

litellm itself is never imported. A requested entry is cut out of the file (3 MB), which takes 1 ms; splitting
all of it into raw entries takes 7 ms.
"""

import importlib.util
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Json, Usage
from crushpy.llm import vendors
from crushpy.llm.protocol import LongPrices, ModelInfo
from crushpy.util.read_json import as_object, first_count

if TYPE_CHECKING:
    from crushpy.settings.schema import ModelSettings

DEMO = "demo/tour"
DEMO_INFO = ModelInfo(
    name=DEMO,
    context_window=32_000,
    max_output_tokens=4_096,
    input_cost=0.0,
    output_cost=0.0,
    images=False,
    source="catalog",
)
"""The built-in model. Its window is small, so that it can be filled within minutes."""

_FILE = "model_prices_and_context_window_backup.json"
_PER_MILLION = 1_000_000
_CHAT_MODES = ("chat", "responses")
_LONG_PRICE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_PRICE_KEYS = {
    "input_cost": "input_cost_per_token",
    "output_cost": "output_cost_per_token",
    "cache_read_cost": "cache_read_input_token_cost",
    "cache_write_cost": "cache_creation_input_token_cost",
    "hour_write_cost": "cache_creation_input_token_cost_above_1hr",
}


def lookup(name: str, override: "ModelSettings | None" = None) -> ModelInfo:
    """The properties of the model `name`: from the settings, else the catalog, else defaults."""
    info = DEMO_INFO if name == DEMO else _from_entry(name, _entry(name))
    return info if override is None else _overridden(info, override)


def all_models() -> list[ModelInfo]:
    """All chat models of the catalog by their full names, sorted."""
    return [DEMO_INFO, *map(lookup, sorted(chat_names()))]


def is_known(name: str) -> bool:
    return name == DEMO or _entry(name) is not None


def nearest_names(name: str, count: int = 3) -> list[str]:
    """The known names nearest to `name`, best first; of the same provider if `name` has a known one."""
    import difflib

    wanted = name.lower()
    known = {known.lower(): known for known in (DEMO, *sorted(chat_names()))}
    same_provider = [known for known in known if known.startswith(wanted.partition("/")[0] + "/")]
    if same_provider:
        return [known[near] for near in difflib.get_close_matches(wanted, same_provider, count)]
    # Without a known provider the rest of the name is compared; makers are preferred to resellers.
    by_maker = sorted(known, key=lambda full: full.partition("/")[0] in vendors.BY_NAME)
    by_tail = {full.rpartition("/")[2]: full for full in by_maker}
    near = difflib.get_close_matches(wanted.rpartition("/")[2], by_tail, count)
    return [known[by_tail[tail]] for tail in near]


def explain_unknown(model: str) -> str:
    """The hint for an unknown model: the nearest names, and how to list all of them."""
    near = nearest_names(model)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return (
        f"{meant}`crushpy models --all` lists every known model; a name has its provider first: openai/gpt-5."
    )


def provider_of(name: str) -> str:
    """The provider to which litellm would send `name`; empty if unknown."""
    prefix, slash, _ = name.partition("/")
    if slash:
        return prefix
    entry = _entry(name)
    if entry is not None:
        return _provider(entry)
    if re.match(r"(gpt-|chatgpt-|o\d)", name):
        return "openai"
    return "anthropic" if name.startswith("claude-") else ""


def needs_responses_api(name: str) -> bool:
    """Whether OpenAI serves this model with tools only on its Responses API.

    That holds for the models marked so in the catalog, and for gpt-5.4 and later: they think by default, and
    OpenAI's chat completions refuse function tools while a model thinks.
    """
    version = re.search(r"(?:^|/)gpt-(\d+)(?:\.(\d+))?", name)
    if version and (int(version[1]), int(version[2] or 0)) >= (5, 4):
        return True
    entry = _entry(name)
    return entry is not None and entry.get("mode") == "responses"


def reasons_over_calls(name: str) -> bool:
    """Whether a model of OpenAI continues its reasoning after a tool call: the o-series, gpt-5 and later.
    Only the Responses API supports that."""
    base = name.rpartition("/")[2].removeprefix("ft:")
    version = re.match(r"gpt-(\d+)", base)
    thinks = bool(re.match(r"o\d|codex-", base)) or (version is not None and int(version[1]) >= 5)
    return (thinks and "-chat" not in base) or needs_responses_api(name)


def cost(info: ModelInfo, usage: Usage) -> float:
    """The cost of a model call in US dollars; 0 if no price is known."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    prices = info.long if info.long is not None and prompt > info.long.over else info
    input_cost = prices.input_cost or 0.0
    read_cost = input_cost if prices.cache_read_cost is None else prices.cache_read_cost
    write_cost = input_cost if prices.cache_write_cost is None else prices.cache_write_cost
    hour_cost = write_cost if prices.hour_write_cost is None else prices.hour_write_cost
    total = (
        usage.input_tokens * input_cost
        + usage.cache_read_tokens * read_cost
        + (usage.cache_write_tokens - usage.hour_write_tokens) * write_cost
        + usage.hour_write_tokens * hour_cost
        + usage.output_tokens * (prices.output_cost or 0.0)
    )
    return total / _PER_MILLION


# --- entries of the file -------------------------------------------------------------------------------


def _from_entry(name: str, entry: Json | None) -> ModelInfo:
    # Local models are free, and those whose name says so.
    free = bool(vendors.vendor_of(name.partition("/")[0]).local) or name.endswith(":free")
    prices: dict[str, Any] = {"input_cost": 0.0, "output_cost": 0.0} if free else {}
    if entry is None:
        return ModelInfo(name=name, context_window=DEFAULT_WINDOW, **prices)
    if not free:
        prices = {**_prices(entry), "long": _long_prices(entry)}
    # Some values of the file are zero or text.
    output, limit = first_count(entry, "max_output_tokens"), first_count(entry, "max_tokens")
    window = first_count(entry, "max_input_tokens") or (0 if output else limit)
    return ModelInfo(
        name=name,
        context_window=window or DEFAULT_WINDOW,
        max_output_tokens=output or limit or None,
        tools=entry.get("supports_function_calling") is not False,
        images=entry.get("supports_vision") is True,
        thinking=entry.get("supports_reasoning") is True,
        source="catalog" if window else "default",
        **prices,
    )


def _long_prices(entry: Json) -> LongPrices | None:
    """The prices of a long request, if the catalog has a step for it (the first, if several)."""
    steps = [int(found[1]) for key in entry if (found := _LONG_PRICE.fullmatch(key))]
    if not steps:
        return None
    over = min(steps)
    stepped = _prices(entry, f"_above_{over}k_tokens")
    known = {field: price for field, price in stepped.items() if price is not None}
    return LongPrices(over=over * 1_000, **(_prices(entry) | known))


def _prices(entry: Json, suffix: str = "") -> dict[str, float | None]:
    """US dollars a million tokens, by field of ModelInfo."""
    values = {field: entry.get(f"{key}{suffix}") for field, key in _PRICE_KEYS.items()}
    return {
        field: round(value * _PER_MILLION, 6) if isinstance(value, int | float) else None
        for field, value in values.items()
    }


def _overridden(info: ModelInfo, override: "ModelSettings") -> ModelInfo:
    changes: dict[str, Any] = {
        key: value
        for key in ("context_window", "max_output_tokens", "input_cost", "output_cost", "images")
        if (value := getattr(override, key)) is not None
    }
    if "context_window" in changes:
        changes["source"] = "settings"
    if "input_cost" in changes:  # the catalog's other prices of input belong to another price list
        changes |= {"cache_read_cost": None, "cache_write_cost": None, "hour_write_cost": None}
    if "input_cost" in changes or "output_cost" in changes:
        changes["long"] = None
    return msgspec.structs.replace(info, **changes) if changes else info


# --- the file ------------------------------------------------------------------------------------------


@cache
def litellm_folder() -> Path | None:
    """The folder of the litellm package, found without importing it."""
    spec = importlib.util.find_spec("litellm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


@cache
def _data() -> bytes:
    folder = litellm_folder()
    try:
        return (folder / _FILE).read_bytes() if folder else b"{}"
    except OSError:
        return b"{}"  # every model then has the default window, marked on the gauge


@cache
def _entries() -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(_data(), type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def _entry(name: str) -> Json | None:
    """The catalog's entry for `name`, under any of its names in the file."""
    return next((found for key in _keys(name) if (found := _find(key)) is not None), None)


@cache
def _find(key: str) -> Json | None:
    quoted = msgspec.json.encode(key)
    if not _entries.cache_info().currsize:  # else it is split already
        if quoted not in _data():
            return None
        start = _data().find(b"\n    %b: {" % quoted)
        end = _data().find(b"\n    }", start)
        with suppress(msgspec.DecodeError):
            if start >= 0:
                return _decode(_data()[start + len(quoted) + len("\n    : ") : end + len("\n    }")])
    entries = _entries()  # the file is laid out in another way
    return _decode(entries[key]) if key in entries else None


def _keys(name: str) -> Iterator[str]:
    """The names that the file may use for `name`, most exact first.

    The file has `gpt-5` for openai/gpt-5, no names of routers such as OpenRouter (which write 4.5 for 4-5),
    and ollama's models without the tag.
    """
    name = name.replace("ollama_chat/", "ollama/", 1)
    for variant in dict.fromkeys((name, name.rpartition(":")[0])):
        rest = variant
        while rest:
            yield rest
            yield rest.replace(".", "-")
            rest = rest.partition("/")[2]


def _decode(raw: msgspec.Raw | bytes) -> Json:
    return as_object(msgspec.json.decode(raw))


def chat_names() -> set[str]:
    """All chat models of the catalog, each prefixed with its provider, as given to `--model`."""
    found: set[str] = set()
    for key, raw in _entries().items():
        entry = _decode(raw)
        if entry.get("mode") in _CHAT_MODES and not key.startswith("ft:"):
            found.add(f"{_provider(entry)}/{key.removeprefix(f'{_provider(entry)}/')}")
    return found


def _provider(entry: Json) -> str:
    """litellm's name of the provider; the file splits some of them (vertex_ai-language-models)."""
    name = str(entry.get("litellm_provider", ""))
    if name.startswith("vertex_ai-"):
        return "vertex_ai"
    return {"bedrock_converse": "bedrock", "cohere_chat": "cohere"}.get(name, name)
