"""Which models are within reach: by the keys that are set, the settings, and the servers on this machine."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crushpy.llm import catalog, local_servers, vendors
from crushpy.llm.protocol import ModelInfo
from crushpy.llm.provider_factory import default_model, is_official
from crushpy.messages import Data
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
    """Of a server on this machine."""


def list_models(settings: "Settings", environ: Mapping[str, str] | None = None) -> list[ListedModel]:
    """Every known model and every one the settings name, in order of name. Contacts nobody."""
    environ = os.environ if environ is None else environ
    known = {info.name: info for info in catalog.all_models()}
    default = default_model(settings, environ)
    named = {default, settings.small_model, settings.compaction.model, *settings.models} - {""}
    for name in named:
        known[name] = catalog.lookup(name, settings.models.get(name))
    return [
        _listed(known[name], settings, environ, named=name in named)
        for name in sorted(known, key=lambda name: (name != catalog.DEMO, name))
    ]


async def list_local_models(
    settings: "Settings", environ: Mapping[str, str] | None = None
) -> list[ListedModel]:
    """The models of the servers on this machine, named as they can be used now or once they are set up."""
    environ = os.environ if environ is None else environ
    bases = {name: provider.api_base for name, provider in settings.providers.items() if provider.api_base}
    if base := _base("openai", settings, environ):
        bases["openai"] = base
    servers = await local_servers.find_local_servers(environ, bases)
    return [
        ListedModel(
            catalog.lookup(f"{server.name}/{model}", settings.models.get(f"{server.name}/{model}")),
            ready=server.name in bases,
            how=f"{server.title} on this machine",
            api_base=server.api_base,
        )
        for server in servers
        for model in server.models
    ]


def _listed(info: ModelInfo, settings: "Settings", environ: Mapping[str, str], *, named: bool) -> ListedModel:
    """Whether a model can be used, and why or why not."""
    provider = catalog.provider_of(info.name)
    if provider == "demo":
        return ListedModel(info, True, "built in")
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = (chosen.api_key_env,) if chosen.api_key_env else vendors.variables_of(provider)
    held = next((variable for variable in variables if environ.get(variable)), "")
    base = _base(provider, settings, environ)
    if base and not named:  # a server of the user's own: what it serves is not in the catalog
        return ListedModel(info, False, f"not known to be at {base}")
    if base and (held or not chosen.api_key_env):
        return ListedModel(info, True, f"at {base}")
    if held:
        return ListedModel(info, True, f"{held} is set")
    if variables:
        return ListedModel(info, False, f"set {variables[0]}")
    if provider in catalog.LOCAL:
        return ListedModel(info, False, "needs its server")
    return ListedModel(info, False, "see litellm's docs for its key")


def _base(provider: str, settings: "Settings", environ: Mapping[str, str]) -> str:
    """The address of a provider, where it is not the usual one."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    base = chosen.api_base or vendors.base_of(provider, environ)
    return "" if provider == "openai" and is_official(base) else base
