"""Lists the models that can be used, from the catalog, settings, keys and servers, and opens one."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import catalog, vendors
from crushpy.llm import model_servers as servers
from crushpy.llm import provider_factory as factory
from crushpy.llm.errors import BadRequest, Unavailable
from crushpy.llm.key_store import locate_key, stored_names
from crushpy.llm.learnt import LearntModel, LearntModels, with_learnt_window
from crushpy.llm.protocol import ModelInfo, Provider
from crushpy.security.private_files import read_stored, write_private
from crushpy.security.redact import redact
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import ProviderSettings, Settings

T = TypeVar("T")
CACHE_LIFETIME_S = 3_600.0
LOCAL_TIMEOUT_S = 1.0
"""For a local server to list its models; loopback answers in milliseconds or not at all."""
PORTS_VARIABLE = "CRUSHPY_LOCAL_PORTS"
"""Replaces the default ports: `ollama=11434,vllm=9000`; empty: no local servers."""
_FIGURES = ("context_window", "max_output_tokens", "input_cost", "output_cost")


class ServerList(Data, frozen=True):
    """The models of one provider, as listed by its server."""

    provider: str
    api_base: str
    models: tuple[servers.ServedModel, ...] = ()
    asked_at: float = 0.0
    failure: str = ""
    """Why the request failed; `models` is then the previous answer, if there is one."""


class ListedModel(Data, frozen=True):
    """A model, and whether it can be used now."""

    info: ModelInfo
    ready: bool
    how: str
    """Why it is usable, or what is missing."""
    api_base: str = ""
    """The address of the user's own server, if that listed it."""
    offered: bool | None = None
    """Whether its server lists it; None if unknown."""


def list_models(
    settings: Settings, lists: Sequence[ServerList] = (), also: Collection[str] = ()
) -> list[ListedModel]:
    """All models of the catalog, the settings and `lists`, and those in `also`, sorted by name. Contacts no
    server."""
    known = {info.name: info for info in catalog.all_models()}
    default = factory.default_model(settings)
    named = {default, settings.small_model, settings.compaction.model, *settings.models}
    named |= {name for name in also if name not in known}
    named -= {"", factory.UNNAMED}
    for name in named:
        known[name] = catalog.lookup(name, settings.models.get(name))
    answered = {listed.provider for listed in lists if listed.asked_at}
    rows = {
        name: _list_model(
            info, settings, named=name in named, offered=False if name.partition("/")[0] in answered else None
        )
        for name, info in known.items()
    }
    for name, (_, model) in served_models(lists).items():
        rows[name] = _list_model(merge_model_info(name, model, settings), settings, offered=True)
    return [rows[name] for name in sorted(rows, key=lambda name: (name != catalog.DEMO, name))]


def apply_learnt(
    models: Iterable[ListedModel], known: Mapping[str, LearntModel], learnt: LearntModels
) -> list[ListedModel]:
    """The models with what was learnt about them, `known` by their names, or under another name."""

    def apply(model: ListedModel) -> ListedModel:
        found = known.get(model.info.name)
        if found is None and model.api_base:
            found = learnt.get(model.info.name, factory.without_secrets(model.api_base))
        return model if found is None else structs.replace(model, info=with_learnt_window(model.info, found))

    return [apply(model) for model in models]


def learn_listed_window(model: ListedModel, learnt: LearntModels) -> None:
    """Remember the window that the user's own server listed, for every name of the model."""
    if model.info.source == "server" and model.api_base:
        window, server = model.info.context_window, factory.without_secrets(model.api_base)
        learnt.update(model.info.name, server, lambda known: structs.replace(known, window=window))


async def list_local_models(settings: Settings, *, set_up: bool = True) -> list[ListedModel]:
    """The models of the servers on this machine, by the names they have once they are set up: of those at the
    default ports and of the user's own, asked concurrently.

    Without `set_up`: only those of servers that are not set up yet.
    """
    bases = {name: provider.api_base for name, provider in settings.providers.items() if provider.api_base}
    if base := factory.custom_base("openai", settings):
        bases["openai"] = base
    defaults = {name: f"http://127.0.0.1:{port}/v1" for name, port in local_ports().items()}
    given = {name: base.rstrip("/") for name, base in bases.items() if vendors.on_loopback(base)}
    # By address, so that none is asked twice; the user's name for an address comes last and wins.
    named = [*(defaults | given).items(), *given.items()]
    names = {base.replace("//localhost:", "//127.0.0.1:"): name for name, base in named}
    asked = [_ask_local(name, base) for base, name in names.items() if set_up or name not in given]
    found = [server for server in await asyncio.gather(*asked) if server is not None]
    return [
        ListedModel(
            merge_model_info(name, model, settings),
            ready=server.provider in bases,
            how=f"{vendors.vendor_of(server.provider).local or server.provider} on this machine",
            api_base=server.api_base,
            offered=True,
        )
        for name, (server, model) in served_models(found).items()
    ]


def merge_model_info(name: str, model: servers.ServedModel, settings: Settings) -> ModelInfo:
    """A served model's properties, from the settings, else the server, else the catalog."""
    override = settings.models.get(name)
    info = catalog.lookup(name, override)
    fields = _FIGURES if catalog.is_known(name) else (*_FIGURES, "tools", "images", "thinking")
    changes: dict[str, Any] = {
        field: value
        for field in fields
        if (value := getattr(model, field)) is not None and getattr(override, field, None) is None
    }
    if "context_window" in changes:
        changes["source"] = "server"
    return structs.replace(info, **changes)


def _list_model(
    info: ModelInfo, settings: Settings, *, named: bool = False, offered: bool | None = None
) -> ListedModel:
    """Whether a model can be used, and why. `named`: in the settings. `offered`: as in `ListedModel`."""
    provider = catalog.provider_of(info.name)
    if provider == "demo":
        return ListedModel(info, True, "built in")
    chosen = settings.providers.get(provider) or ProviderSettings()
    usual = vendors.BY_NAME[provider].variables if provider in vendors.BY_NAME else ()  # others need more
    variables = (chosen.api_key_env,) if chosen.api_key_env else usual
    place = locate_key(provider, settings)
    base = factory.custom_base(provider, settings)
    if offered is False and not named:
        return ListedModel(info, False, "its server does not offer it", offered=False)
    if base and not named and not offered:  # the catalog does not know what the user's own server offers
        return ListedModel(info, False, f"not known to be at {redact(base)}")
    ways = {
        f"at {redact(base)}": base and (offered or place.held or place.stored or not chosen.api_key_env),
        f"{place.variable} is set": place.held and variables,
        "its key is stored": place.stored,
    }
    if how := next((way for way, usable in ways.items() if usable), ""):
        return ListedModel(info, True, how, base if offered else "", offered)
    if variables:
        return ListedModel(info, False, f"set {variables[0]}")
    if vendors.vendor_of(provider).local:
        return ListedModel(info, False, "needs its server")
    return ListedModel(info, False, "see litellm's docs for its key")


# --- lists of configured servers, and their cache ---------------------------------------------------------


def cached_lists(settings: Settings) -> list[ServerList]:
    """The cached lists of any age. Contacts no server and opens no keyring."""
    known = _read_cache()
    return [known[key] for key in map(_cache_key, _endpoints(settings)) if key in known]


async def ask_servers(settings: Settings, *, refresh: bool = False) -> list[ServerList]:
    """The list of each provider with a key or an address: from the cache, or requested concurrently."""
    known = _read_cache()
    endpoints = {_cache_key(endpoint): endpoint for endpoint in _endpoints(settings)}

    async def ask(key: str, endpoint: vendors.Endpoint) -> ServerList:
        before = known.get(key) or ServerList(endpoint.vendor, endpoint.api_base)
        if not refresh and 0 <= time.time() - before.asked_at < CACHE_LIFETIME_S:
            return before
        return await _update_list(before, endpoint, settings)

    lists = await asyncio.gather(*(ask(*item) for item in endpoints.items()))
    current = known | dict(zip(endpoints, lists, strict=True))
    answered = {key: structs.replace(found, failure="") for key, found in current.items() if found.asked_at}
    if answered not in ({}, known):
        with suppress(OSError):  # the servers are asked again next time
            write_private(Paths().model_lists, msgspec.json.encode(answered))
    return list(lists)


async def _update_list(before: ServerList, endpoint: vendors.Endpoint, settings: Settings) -> ServerList:
    if endpoint.key_stored:
        endpoint = await asyncio.to_thread(factory.locate_endpoint, f"{endpoint.vendor}/", settings)
    if endpoint.key_problem:
        return structs.replace(before, failure=endpoint.key_problem.rstrip("."))
    if endpoint.own_key_variable and not endpoint.key:
        return structs.replace(before, failure=f"{endpoint.key_variable} is not set")
    try:
        models = await servers.ask_server(endpoint)
    except servers.ListFailed as error:
        message = error.message.replace(endpoint.key, "[key]") if endpoint.key else error.message
        return structs.replace(before, failure=one_line(redact(message)))
    return structs.replace(before, models=models, asked_at=time.time(), failure="")


def _endpoints(settings: Settings) -> list[vendors.Endpoint]:
    """The endpoints of all providers with a key or an address of which the protocol is known."""
    names = dict.fromkeys((*vendors.BY_NAME, "ollama", *settings.providers, *sorted(stored_names())))
    found = [factory.locate_endpoint(f"{name}/", settings, open_keyring=False) for name in names]
    usable = [provider for provider in found if provider.key or provider.key_stored or provider.api_base]
    return [endpoint for endpoint in usable if servers.list_address(endpoint)[1]]


def _cache_key(endpoint: vendors.Endpoint) -> str:
    """With the source of the key: another key may see other models."""
    origin = "keyring" if endpoint.key_stored else endpoint.key_variable if endpoint.key else ""
    return " ".join((endpoint.vendor, endpoint.api_base, origin))


def _read_cache() -> dict[str, ServerList]:
    return read_stored(Paths().model_lists, dict[str, ServerList]) or {}


def served_models(lists: Sequence[ServerList]) -> dict[str, tuple[ServerList, servers.ServedModel]]:
    """Every served model, by its full name."""
    return {f"{listed.provider}/{model.id}": (listed, model) for listed in lists for model in listed.models}


# --- servers on this machine -----------------------------------------------------------------------------


def local_model_commands(local: ListedModel) -> tuple[str, str]:
    """The commands to use a model of a local server: once, and permanently."""
    name, base = one_line(local.info.name), local.api_base
    provider, _, model = name.partition("/")
    once = f"OPENAI_BASE_URL={base} crushpy -m openai/{model}"
    return once, f"crushpy config set providers.{provider}.api_base {base}, then crushpy -m {name}"


def local_ports() -> dict[str, int]:
    """The ports of local servers, by server name."""
    text = os.environ.get(PORTS_VARIABLE)
    if text is None:
        return {name: vendor.port for name, vendor in vendors.VENDORS.items() if vendor.port}
    found: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, equals, port = entry.partition("=")
        if not equals or not name or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise UsageError(
                f"{PORTS_VARIABLE} has {entry!r}, which is not a name and a port.",
                "Write it like ollama=11434,vllm=8000, or leave it empty to skip local servers.",
            )
        found[name] = int(port)
    return found


async def _ask_local(name: str, base: str) -> ServerList | None:
    """None if there is no server, or another program: 8000 and 8080 are popular ports."""
    endpoint = vendors.Endpoint("", name, base)
    models = await _if_answered(lambda: servers.ask_server(endpoint, LOCAL_TIMEOUT_S))
    return None if models is None else ServerList(name, base, models=models)


# --- windows and prices ----------------------------------------------------------------------------------


def format_window(tokens: int | None) -> str:
    """A window: 200k, 1.0M."""
    if tokens is None:
        return "-"
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{round(tokens / 1_000)}k" if tokens >= 1_000 else str(tokens)


def format_price(dollars: float | None) -> str:
    """The price of a million tokens."""
    if dollars is None:
        return "-"
    return "free" if dollars == 0 else f"{dollars:.2f}"


# --- opening a provider, after asking its server about the model: its window, and whether it calls tools
#
# Ollama is always asked. Another server of the user's own is asked if it is on this machine, or if the window
# of the model is unknown; a server that cannot say changes nothing.


PROBE_SERVER_TIMEOUT_S = 2.0
LOADING_PAUSE_S = 0.5
MAX_NAMES = 20
"""Names of models in an error."""


async def open_provider(model: str, settings: Settings) -> tuple[Provider, servers.ServedModel | None]:
    """The provider of `model`, and what its server says about it. Raises ModelError if it cannot be used."""
    endpoint = await asyncio.to_thread(factory.find_endpoint, model, settings)  # the keyring may be slow
    protocol = factory.endpoint_protocol(endpoint, settings)
    chosen = settings.models.get(model)
    window = chosen.context_window if chosen else None
    served = None
    if protocol == "ollama":
        served = await _require_ollama(endpoint, window)
    elif protocol == "chat" and window is None and _is_worth_asking(endpoint):
        protocol, served = await _ask_own_server(endpoint)
    elif protocol == "chat" and vendors.on_loopback(endpoint.api_base):
        served = servers.ServedModel(endpoint.served_name, slots=await _slots_once_loaded(endpoint))
    if protocol == "ollama" and served is not None:
        endpoint = structs.replace(endpoint, window=served.context_window)
    return factory.create_client(protocol, endpoint), served


async def choose_default(settings: Settings) -> str:
    """The model to use if none is named. Raises UsageError if the user's own server has none, or several."""
    name = factory.default_model(settings)
    if name != factory.UNNAMED:
        return name
    endpoint = await asyncio.to_thread(factory.locate_endpoint, factory.UNNAMED, settings)
    where, usual = f"the server at {redact(endpoint.api_base)}", vendors.BY_NAME["openai"].default_model
    if vendors.on_loopback(endpoint.api_base):
        await _slots_once_loaded(endpoint)
    try:
        listed = await servers.ask_server(endpoint)
    except servers.ListFailed as error:
        if endpoint.key:  # a gateway may not list its models
            return usual
        raise UsageError(
            f"No model is chosen, and {where} does not list its models: {redact(error.message)}.",
            "Start it, check OPENAI_BASE_URL, or choose a model with -m openai/MODEL.",
        ) from None
    names = [f"openai/{model.id}" for model in listed]
    if len(names) == 1 or usual in names:
        return usual if usual in names else names[0]
    shown = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    raise UsageError(
        f"No model is chosen, and {where} has {len(names)}{': ' + one_line(shown) if names else ''}.",
        "Choose one with -m openai/MODEL, or for always: crushpy config set model openai/MODEL",
    )


def _is_worth_asking(endpoint: vendors.Endpoint) -> bool:
    if not endpoint.own_server or endpoint.vendor == "azure":
        return False
    return vendors.on_loopback(endpoint.api_base) or catalog.lookup(endpoint.model).source == "default"


async def _require_ollama(endpoint: vendors.Endpoint, window: int | None) -> servers.ServedModel:
    try:
        return await servers.show_ollama(endpoint, window)
    except servers.ListFailed as error:
        name = endpoint.served_name
        where = f"Ollama at {vendors.server_root(endpoint.api_base or vendors.OLLAMA_BASE)}"
        if error.status == 404:
            hint = f"Run `ollama pull {name}`; `crushpy models` lists the models that it has."
            raise BadRequest(f"{where} does not have the model {name}.", hint, status=404) from None
        hint = error.hint or "Start it with `ollama serve`; OLLAMA_HOST sets another address."
        raise Unavailable(f"{where} cannot be used: {error.message}", hint) from None


async def _ask_own_server(endpoint: vendors.Endpoint) -> tuple[str, servers.ServedModel | None]:
    """The protocol to use, and the description of the model. Ollama is used in its own protocol, unless the
    settings say otherwise: the other one cannot set the window."""
    slots = await _slots_once_loaded(endpoint)
    shown, listed = await asyncio.gather(
        _if_answered(lambda: servers.show_ollama(endpoint, timeout_s=PROBE_SERVER_TIMEOUT_S)),
        _if_answered(lambda: servers.ask_server(endpoint, PROBE_SERVER_TIMEOUT_S)),
    )
    if shown and endpoint.protocol == "auto":
        return "ollama", shown
    found = next(
        (model for model in listed or () if servers.same_model(model.id, endpoint.served_name)), None
    )
    return "chat", found and structs.replace(found, slots=slots)


async def _slots_once_loaded(endpoint: vendors.Endpoint) -> int | None:
    """How many requests the server answers at a time, if it is llama.cpp. On this machine: waits while it
    loads its model, because it refuses everything until then."""
    while True:
        try:
            return await servers.ask_slots(endpoint, PROBE_SERVER_TIMEOUT_S)
        except servers.ListFailed as error:
            loading = error.status == 503 and "loading" in error.message.lower()
            if not (loading and vendors.on_loopback(endpoint.api_base)):
                return None
        await asyncio.sleep(LOADING_PAUSE_S)


async def _if_answered(ask: Callable[[], Awaitable[T]]) -> T | None:
    """The answer of a server; None if it cannot say."""
    try:
        return await ask()
    except servers.ListFailed:
        return None
