"""Which provider answers for a model, with which key and at which address; and which model, if none is named.

Nothing is contacted here, and litellm is not imported: a missing key or a wrong name is told before any
request. A new protocol is a room of its own beside this file and one row of `PROTOCOLS`.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from crushpy.llm import catalog, vendors
from crushpy.llm.errors import AuthenticationFailed, BadRequest
from crushpy.llm.protocol import Piece, Provider, Request
from crushpy.messages import Data
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.settings import Settings

OPENAI_BASE = "https://api.openai.com/v1"
BASE_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


class Endpoint(Data, frozen=True):
    """Where a model is served, and what it takes to be let in."""

    model: str
    vendor: str
    """What stands before the slash of the model's name, or would."""
    api_base: str = ""
    """Empty: the vendor's usual address."""
    key: str | None = None
    key_variable: str = ""
    """The environment variable that holds the key, for hints."""
    own_key_variable: bool = False
    """The settings name that variable."""
    window: int | None = None
    """Of the built-in model, which has no server that knows it."""


# --- the protocols -------------------------------------------------------------------------------------


def _chat(endpoint: Endpoint) -> Provider:
    from crushpy.llm.openai.provider import WireProvider

    return WireProvider(
        endpoint.api_base or OPENAI_BASE,
        endpoint.key,
        strip=f"{endpoint.vendor}/",
        key_variable=endpoint.key_variable or "OPENAI_API_KEY",
    )


def _litellm(endpoint: Endpoint) -> Provider:
    from crushpy.llm.litellm.provider import LiteLLMProvider

    # A key in its usual variable, for the usual server, is left to litellm: it knows how each is sent.
    key = endpoint.key if endpoint.api_base or endpoint.own_key_variable else None
    provider = LiteLLMProvider(endpoint.api_base or None, key, key_variable=endpoint.key_variable)
    if endpoint.vendor != "openai" and _speaks_chat(endpoint.vendor, endpoint.api_base):
        return _AsOpenAI(provider)
    return provider


def _demo(endpoint: Endpoint) -> Provider:
    from crushpy.llm.demo import DemoProvider

    return DemoProvider(endpoint.window)


PROTOCOLS: dict[str, Callable[[Endpoint], Provider]] = {
    "chat": _chat,
    "litellm": _litellm,
    "demo": _demo,
}
"""What is spoken, and what makes a provider that speaks it."""


# --- which of them -------------------------------------------------------------------------------------


def select(model: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> Provider:
    """The provider that answers for `model`. Raises AuthenticationFailed or BadRequest where none can."""
    endpoint = find_endpoint(model, settings, os.environ if environ is None else environ)
    return PROTOCOLS[protocol_of(endpoint, settings)](endpoint)


def protocol_of(endpoint: Endpoint, settings: "Settings") -> str:
    """The key in `PROTOCOLS` of what is spoken there: as the settings say, else the leanest that works."""
    if endpoint.vendor == "demo":
        return "demo"
    if settings.provider == "litellm" or not _speaks_chat(endpoint.vendor, endpoint.api_base):
        return "litellm"
    official = endpoint.vendor == "openai" and is_official(endpoint.api_base)
    return "litellm" if official and catalog.needs_responses_api(endpoint.model) else "chat"


def find_endpoint(model: str, settings: "Settings", environ: Mapping[str, str]) -> Endpoint:
    """Where `model` is served. Raises AuthenticationFailed or BadRequest where nobody serves it."""
    if model.startswith("demo/"):
        if model != catalog.DEMO:
            raise BadRequest(f"There is no model {model}.", f"The built-in model is {catalog.DEMO}.")
        window = catalog.lookup(model, settings.models.get(model)).context_window
        return Endpoint(model, "demo", window=window)
    vendor = catalog.provider_of(model)
    if not vendor and openai_base(environ):
        vendor = "openai"  # a bare name, and a server of the user's own that will know it
    if not vendor:
        raise BadRequest(f"There is no model {model}.", catalog.explain_unknown(model))
    chosen = settings.providers.get(vendor) or ProviderSettings()
    base = chosen.api_base or (openai_base(environ) if vendor == "openai" else "")
    return Endpoint(
        model,
        vendor,
        base,
        _key(model, vendor, chosen, base, environ),
        chosen.api_key_env or next(iter(vendors.variables_of(vendor)), ""),
        bool(chosen.api_key_env),
    )


def default_model(settings: "Settings", environ: Mapping[str, str] | None = None) -> str:
    """The model to use where the user named none: by the settings, else by the keys that are there."""
    environ = os.environ if environ is None else environ
    if settings.model:
        return settings.model
    for vendor in vendors.PROVIDERS:
        chosen = settings.providers.get(vendor.name) or ProviderSettings()
        if environ.get(chosen.api_key_env) or vendors.find_key(vendor.name, environ):
            return vendor.default_model
    return catalog.DEMO


def is_official(base: str) -> bool:
    """Whether `base` (empty: the usual one) is OpenAI's own server."""
    host = urlsplit(base or OPENAI_BASE).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def openai_base(environ: Mapping[str, str]) -> str:
    """Where the environment says OpenAI's protocol is spoken; empty where it says nothing."""
    return next((environ[name].strip() for name in BASE_VARIABLES if environ.get(name, "").strip()), "")


def _speaks_chat(vendor: str, base: str) -> bool:
    """Whether this vendor's server speaks OpenAI's chat protocol."""
    if vendor == "openai":
        return True
    if not base or vendor in vendors.OWN_PROTOCOL:
        return False
    if vendor.startswith("ollama"):  # its own protocol at the root, OpenAI's below /v1
        return base.rstrip("/").endswith("/v1")
    return True


class _AsOpenAI:
    """A provider that the user named: litellm knows it only as a server like OpenAI's."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.slow_to_begin = provider.slow_to_begin

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        name = f"openai/{request.model.partition('/')[2]}"
        return self._provider.stream(msgspec.structs.replace(request, model=name))

    async def close(self) -> None:
        await self._provider.close()


# --- keys ----------------------------------------------------------------------------------------------


def _key(
    model: str, vendor: str, chosen: ProviderSettings, base: str, environ: Mapping[str, str]
) -> str | None:
    """The key to send; None where none is needed. The key of one vendor never goes to another's server."""
    variables = (chosen.api_key_env,) if chosen.api_key_env else vendors.variables_of(vendor)
    key = next((environ[variable] for variable in variables if environ.get(variable)), None)
    if key or not variables:
        return key
    own_server = bool(base) and not (vendor == "openai" and is_official(base))
    if own_server and not chosen.api_key_env:
        return None
    raise AuthenticationFailed(
        f"There is no key for {model}: {' or '.join(variables)} is not set.", _no_key(vendor)
    )


def _no_key(vendor: str) -> str:
    server = f"{BASE_VARIABLES[0]}=http://..." if vendor == "openai" else f"[providers.{vendor}] api_base"
    return (
        f"Set it in the environment, or use a server of your own ({server}), or another model with -m "
        f"(`crushpy models` lists what is within reach; {catalog.DEMO} needs no key)."
    )
