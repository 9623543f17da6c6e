"""Which models are within reach: by the keys that are there, the settings, and what servers offer."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.core.messages import Data
from crushpy.llm import catalog, local_servers, vendors
from crushpy.llm.key_store import locate_key
from crushpy.llm.learnt import LearntModels, with_learnt_window
from crushpy.llm.offered_models import ServerList, served_by
from crushpy.llm.protocol import ModelInfo
from crushpy.llm.provider_factory import default_model, is_official, server_of
from crushpy.llm.server_lists import ServedModel
from crushpy.security.redact import redact
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.settings import Settings


class ListedModel(Data, frozen=True):
    """A model, and whether it can be used as things are."""

    info: ModelInfo
    ready: bool
    how: str
    """What makes it usable, or what is missing, in words."""
    api_base: str = ""
    """Of a server of the user's own that was asked."""
    offered: bool | None = None
    """Whether its server has it; None where the server was not asked or did not say."""


def list_models(
    settings: "Settings", environ: Mapping[str, str] | None = None, lists: Sequence[ServerList] = ()
) -> list[ListedModel]:
    """Every known model, every one the settings name, and all of `lists`, by name. Contacts nobody."""
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
        rows[name] = ListedModel(info, True, _way_in(server), _own_base(server, settings, environ), True)
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
    servers = await local_servers.find_local_servers(environ, bases, ask_bases=set_up)
    return [
        ListedModel(
            described(f"{server.name}/{model.id}", model, settings),
            ready=server.name in bases,
            how=f"{server.title} on this machine",
            api_base=server.api_base,
            offered=True,
        )
        for server in servers
        for model in server.served
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
    """The address of a provider, where it is not the usual one."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    base = chosen.api_base or vendors.base_of(provider, environ)
    return "" if provider == "openai" and is_official(base) else base


def _own_base(server: ServerList, settings: "Settings", environ: Mapping[str, str]) -> str:
    return own_base(server.provider, settings, environ)


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
