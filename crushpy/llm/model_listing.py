"""Which models can be used: by the keys that are set, the settings, and the lists of servers."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import catalog, vendors
from crushpy.llm.key_store import locate_key, stored_names
from crushpy.llm.learnt import LearntModels, with_learnt_window
from crushpy.llm.model_servers import ListFailed, ListSource, ServedModel, ask_server
from crushpy.llm.protocol import ModelInfo
from crushpy.llm.provider_factory import Endpoint, default_model, endpoint_of, is_official, server_of
from crushpy.security.redact import redact
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.settings import Settings

CACHE_LIFETIME_S = 3_600.0
LOCAL_TIMEOUT_S = 1.0
"""For a local server to list its models; loopback answers in milliseconds or not at all."""
PORTS_VARIABLE = "CRUSHPY_LOCAL_PORTS"
"""Replaces the usual ports: `ollama=11434,vllm=9000`; empty: look nowhere."""
USUAL_PORTS = {"ollama": 11434, "lm_studio": 1234, "llama_cpp": 8080, "vllm": 8000}
LOCAL_TITLES = {"ollama": "Ollama", "lm_studio": "LM Studio", "llama_cpp": "llama.cpp", "vllm": "vLLM"}


class ServerList(Data, frozen=True):
    """The models of one provider, as its server listed them."""

    provider: str
    api_base: str
    key_origin: str = ""
    """Where the key that it was asked with came from: another key may see other models."""
    models: tuple[ServedModel, ...] = ()
    asked_at: float = 0.0
    failure: str = ""
    """Why it could not be asked now; `models` is then its previous answer, if there is one."""


class ListedModel(Data, frozen=True):
    """A model, and whether it can be used now."""

    info: ModelInfo
    ready: bool
    how: str
    """What makes it usable, or what is missing, in words."""
    api_base: str = ""
    """Of a server of the user's own that was asked."""
    offered: bool | None = None
    """Whether its server has it; None if the server was not asked or did not say."""


def list_models(
    settings: "Settings", environ: Mapping[str, str] | None = None, lists: Sequence[ServerList] = ()
) -> list[ListedModel]:
    """Every known model, every one the settings name, and all of `lists`, by name. Contacts no server."""
    environ = os.environ if environ is None else environ
    known = {info.name: info for info in catalog.all_models()}
    default = default_model(settings, environ)
    named = {default, settings.small_model, settings.compaction.model, *settings.models} - {""}
    for name in named:
        known[name] = catalog.lookup(name, settings.models.get(name))
    answered = {one.provider for one in lists if one.asked_at}
    served = served_by(lists)
    rows = {
        name: _listed(info, settings, environ, named=name in named, asked=name.partition("/")[0] in answered)
        for name, info in known.items()
    }
    for name, (server, model) in served.items():
        info = described(name, model, settings)
        base = own_base(server.provider, settings, environ)
        rows[name] = ListedModel(info, True, _way_in(server), base, True)
    return [rows[name] for name in sorted(rows, key=lambda name: (name != catalog.DEMO, name))]


def with_learnt(
    models: Sequence[ListedModel],
    settings: "Settings",
    learnt: LearntModels,
    environ: Mapping[str, str] | None = None,
    *,
    add: bool = False,
) -> list[ListedModel]:
    """The same with the windows that their servers named in errors; `add`: and the models of which only that
    is known."""
    environ = os.environ if environ is None else environ
    known = dict(learnt.windows(lambda name: server_of(name, settings, environ)))
    listed = {model.info.name for model in models}
    missing = [
        _listed(catalog.lookup(name, settings.models.get(name)), settings, environ, named=True, asked=False)
        for name in sorted(known)
        if add and name not in listed
    ]
    return [
        msgspec.structs.replace(model, info=with_learnt_window(model.info, known[model.info.name]))
        if model.info.name in known
        else model
        for model in (*models, *missing)
    ]


async def list_local_models(
    settings: "Settings", environ: Mapping[str, str] | None = None, *, set_up: bool = True
) -> list[ListedModel]:
    """The models of the servers on this machine, named as they can be used now or once they are set up.

    Without `set_up`: only of those that are not set up yet.
    """
    environ = os.environ if environ is None else environ
    bases = {name: provider.api_base for name, provider in settings.providers.items() if provider.api_base}
    if base := own_base("openai", settings, environ):
        bases["openai"] = base
    servers = await find_local_servers(environ, bases, ask_bases=set_up)
    return [
        ListedModel(
            described(name, model, settings),
            ready=server.provider in bases,
            how=f"{LOCAL_TITLES.get(server.provider, server.provider)} on this machine",
            api_base=server.api_base,
            offered=True,
        )
        for name, (server, model) in served_by(servers).items()
    ]


def described(name: str, model: ServedModel, settings: "Settings") -> ModelInfo:
    """All that is known of a model that a server offers: settings before server before catalog."""
    override = settings.models.get(name)
    info = catalog.lookup(name, override)
    said: dict[str, Any] = {
        field: value
        for field in ("context_window", "max_output_tokens", "input_cost", "output_cost")
        if (value := getattr(model, field)) is not None and getattr(override, field, None) is None
    }
    if "context_window" in said:
        said["source"] = "server"
    said |= {
        field: value
        for field in ("tools", "images", "thinking")
        if (value := getattr(model, field)) is not None and not catalog.is_known(name)
    }
    return msgspec.structs.replace(info, **said)


def own_base(provider: str, settings: "Settings", environ: Mapping[str, str]) -> str:
    """The address of a provider, if it is not the usual one."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    base = chosen.api_base or vendors.base_of(provider, environ)
    return "" if provider == "openai" and is_official(base) else base


def _way_in(server: ServerList) -> str:
    if server.api_base and not (server.provider == "openai" and is_official(server.api_base)):
        return f"at {redact(server.api_base)}"
    return "its key is in the keyring" if server.key_origin == "keyring" else f"{server.key_origin} is set"


def _listed(
    info: ModelInfo, settings: "Settings", environ: Mapping[str, str], *, named: bool, asked: bool
) -> ListedModel:
    """Whether a model can be used, and why or why not. `asked`: its server has not named it."""
    provider = catalog.provider_of(info.name)
    if provider == "demo":
        return ListedModel(info, True, "built in")
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = (chosen.api_key_env,) if chosen.api_key_env else vendors.variables_of(provider)
    place = locate_key(provider, settings, environ)
    base = own_base(provider, settings, environ)
    offered = False if asked else None
    if asked and not named:
        return ListedModel(info, False, "its server does not offer it", offered=False)
    if base and not named:  # a server of the user's own: what it serves is not in the catalog
        return ListedModel(info, False, f"not known to be at {redact(base)}")
    if base and (place.held or place.stored or not chosen.api_key_env):
        return ListedModel(info, True, f"at {redact(base)}", offered=offered)
    if place.held and variables:
        return ListedModel(info, True, f"{place.variable} is set", offered=offered)
    if place.stored:
        return ListedModel(info, True, "its key is in the keyring", offered=offered)
    if variables:
        return ListedModel(info, False, f"set {variables[0]}")
    if provider in catalog.LOCAL:
        return ListedModel(info, False, "needs its server")
    return ListedModel(info, False, "see litellm's docs for its key")


# --- configured servers, asked and cached ----------------------------------------------------------------


def cached_lists(settings: "Settings", environ: Mapping[str, str] | None = None) -> list[ServerList]:
    """The cached lists, however old. Contacts no server and opens no keyring."""
    wanted = {_place(endpoint) for endpoint in _endpoints(settings, environ)}
    return [one for one in _read() if (one.provider, one.api_base, one.key_origin) in wanted]


async def ask_servers(
    settings: "Settings", environ: Mapping[str, str] | None = None, *, refresh: bool = False
) -> list[ServerList]:
    """What each provider with a key or an address offers: from the cache, or asked concurrently."""
    known = {(one.provider, one.api_base, one.key_origin): one for one in _read()}

    async def ask(endpoint: Endpoint) -> ServerList:
        before = known.get(_place(endpoint), ServerList(*_place(endpoint)))
        if not refresh and 0 <= time.time() - before.asked_at < CACHE_LIFETIME_S:
            return before
        return await _asked(before, endpoint, settings, environ)

    lists = await asyncio.gather(*(ask(endpoint) for endpoint in _endpoints(settings, environ)))
    _keep({**known, **{(one.provider, one.api_base, one.key_origin): one for one in lists}}.values())
    return list(lists)


async def _asked(
    before: ServerList, endpoint: Endpoint, settings: "Settings", environ: Mapping[str, str] | None
) -> ServerList:
    if endpoint.key_stored:
        endpoint = await asyncio.to_thread(endpoint_of, endpoint.vendor, settings, environ)
    if endpoint.key_problem:
        return msgspec.structs.replace(before, failure=endpoint.key_problem.rstrip("."))
    if endpoint.own_key_variable and not endpoint.key:
        return msgspec.structs.replace(before, failure=f"{endpoint.key_variable} is not set")
    protocol, base = _spoken_at(endpoint)
    try:
        models = await ask_server(ListSource(protocol, base, endpoint.key, endpoint.bearer))
    except ListFailed as error:
        return msgspec.structs.replace(before, failure=_harmless(error.message, endpoint.key))
    return msgspec.structs.replace(before, models=models, asked_at=time.time(), failure="")


# --- who is asked --------------------------------------------------------------------------------------


def _endpoints(settings: "Settings", environ: Mapping[str, str] | None) -> list[Endpoint]:
    environ = os.environ if environ is None else environ
    names = dict.fromkeys((*vendors.BY_NAME, *settings.providers, *sorted(stored_names())))
    found = [endpoint_of(name, settings, environ, open_keyring=False) for name in names]
    within_reach = [one for one in found if one.key or one.key_stored or one.api_base]
    return [endpoint for endpoint in within_reach if _spoken_at(endpoint)[1]]


def _spoken_at(endpoint: Endpoint) -> tuple[str, str]:
    """The protocol and the address to ask for a provider's list; empty if no address is known."""
    known = vendors.BY_NAME.get(endpoint.vendor)
    base = endpoint.api_base or (known.usual_base if known else "")
    if endpoint.protocol in ("anthropic", "gemini"):
        return endpoint.protocol, base
    if endpoint.protocol in ("chat", "responses"):
        return "openai", base
    if endpoint.vendor in ("anthropic", "gemini"):
        return endpoint.vendor, base
    if endpoint.vendor in vendors.OWN_PROTOCOL:
        return "", ""
    return "ollama" if endpoint.vendor.startswith("ollama") else "openai", base


def _place(endpoint: Endpoint) -> tuple[str, str, str]:
    origin = "keyring" if endpoint.key_stored else endpoint.key_variable if endpoint.key else ""
    return endpoint.vendor, endpoint.api_base, origin


def _harmless(text: str, key: str | None) -> str:
    return one_line(redact(text.replace(key, "[key]") if key else text))


# --- the cache -----------------------------------------------------------------------------------------


def _read() -> list[ServerList]:
    try:
        return msgspec.json.decode(Paths().model_lists.read_bytes(), type=list[ServerList])
    except (OSError, msgspec.DecodeError):
        return []


def _keep(lists: Iterable[ServerList]) -> None:
    from crushpy.security.private_files import write_private

    good = [msgspec.structs.replace(one, failure="") for one in lists if one.asked_at]
    if not good or good == _read():
        return
    try:
        write_private(Paths().model_lists, msgspec.json.encode(good))
    except OSError:
        pass  # they are asked again next time


def served_by(lists: Sequence[ServerList]) -> dict[str, tuple[ServerList, ServedModel]]:
    """Every model that is offered, by the name that a user gives it."""
    return {f"{one.provider}/{model.id}": (one, model) for one in lists for model in one.models}


# --- servers on this machine -----------------------------------------------------------------------------


def ways(name: str, api_base: str, model: str) -> tuple[str, str]:
    """How to use a model of a server that was found: a single time, and from now on."""
    once = f"OPENAI_BASE_URL={api_base} crushpy -m openai/{model}"
    for_good = f"crushpy config set providers.{name}.api_base {api_base}, then crushpy -m {name}/{model}"
    return once, for_good


async def find_local_servers(
    environ: Mapping[str, str] | None = None,
    bases: Mapping[str, str] | None = None,
    *,
    ask_bases: bool = True,
) -> list[ServerList]:
    """The servers that answer, asked concurrently; `bases` are addresses to ask besides, by name.

    Without `ask_bases` they are left out, also if one of them is at a usual port.

    What is not on loopback, or does not answer like a model server, is left out.
    """
    usual = {name: f"http://127.0.0.1:{port}/v1" for name, port in ports(environ).items()}
    given = {name: base.rstrip("/") for name, base in (bases or {}).items() if _on_loopback(base)}
    # By address, so that none is asked twice; a name that the user gave comes last and stays.
    places = {base.replace("//localhost:", "//127.0.0.1:"): name for name, base in (usual | given).items()}
    places |= {base.replace("//localhost:", "//127.0.0.1:"): name for name, base in given.items()}
    if not ask_bases:
        places = {base: name for base, name in places.items() if name not in given}
    answers = await asyncio.gather(*(_ask_local(name, base) for base, name in places.items()))
    return [server for server in answers if server is not None]


def ports(environ: Mapping[str, str] | None = None) -> dict[str, int]:
    """The ports to look at, by server name."""
    text = (os.environ if environ is None else environ).get(PORTS_VARIABLE)
    if text is None:
        return dict(USUAL_PORTS)
    found: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, equals, port = entry.partition("=")
        if not equals or not name or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise UsageError(
                f"{PORTS_VARIABLE} has {entry!r}, which is not a name and a port.",
                "Write it like ollama=11434,vllm=8000, or leave it empty to look nowhere.",
            )
        found[name] = int(port)
    return found


async def _ask_local(name: str, base: str) -> ServerList | None:
    protocol = "ollama" if name.startswith("ollama") else "openai"
    try:
        return ServerList(name, base, models=await ask_server(ListSource(protocol, base), LOCAL_TIMEOUT_S))
    except ListFailed:
        return None  # no server there, or another program: 8000 and 8080 are popular ports


def _on_loopback(base: str) -> bool:
    from crushpy.http import HttpError, parse_url
    from crushpy.http.proxies import is_loopback

    try:
        return is_loopback(parse_url(base).host)
    except HttpError:
        return False


# --- windows and prices ----------------------------------------------------------------------------------


def format_window(tokens: int | None) -> str:
    """A window: 200k, 1.0M."""
    if tokens is None:
        return "-"
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M"
    return f"{round(tokens / 1_000)}k" if tokens >= 1_000 else str(tokens)


def format_price(dollars: float | None) -> str:
    """What a million tokens cost."""
    if dollars is None:
        return "-"
    return "free" if dollars == 0 else f"{dollars:.2f}"
