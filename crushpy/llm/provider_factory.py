"""Which provider answers for a model, with which key and at which address; and which model, if none is named.

Nothing is contacted here, and litellm is not imported: a missing key or a wrong name is told before any
request. A new protocol is a room of its own beside this file and one row of `PROTOCOLS`.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from crushpy.core.messages import Data
from crushpy.llm import catalog, vendors
from crushpy.llm.errors import AuthenticationFailed, BadRequest
from crushpy.llm.key_store import find_key, stored_names, variable_hint
from crushpy.llm.protocol import Piece, Provider, Request
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.llm.http_provider import HttpProviderOptions
    from crushpy.settings import Settings

OPENAI_BASE = "https://api.openai.com/v1"
BASE_VARIABLES = vendors.BY_NAME["openai"].base_variables
VENDOR_PROTOCOLS = {"anthropic": "anthropic", "gemini": "gemini"}
"""What the servers of a vendor speak, wherever they stand."""


class Endpoint(Data, frozen=True):
    """Where a model is served, and how to authenticate there."""

    model: str
    vendor: str
    """What stands before the slash of the model's name, or would."""
    api_base: str = ""
    """Empty: the vendor's usual address."""
    key: str | None = None
    key_variable: str = ""
    """The environment variable that holds the key or would, for hints."""
    own_key_variable: bool = False
    """The settings name that variable."""
    protocol: str = "auto"
    """What the settings say is spoken there."""
    api_version: str = ""
    """Azure's older addresses name one."""
    window: int | None = None
    """Of the built-in model, which has no server that knows it."""
    key_stored: bool = False
    """The key is in the system's keyring."""
    key_problem: str = ""
    """Why it could not be read there."""

    @property
    def bearer(self) -> bool:
        """Whether the key is a token, as gateways and directories hand them out."""
        return self.key_variable.endswith("_TOKEN")

    @property
    def key_origin(self) -> str:
        """What a hint names if the key is wrong: the variable, or the command that stores another."""
        return f"crushpy connect {self.vendor}" if self.key_stored else self.key_variable


# --- the protocols -------------------------------------------------------------------------------------


def _chat(endpoint: Endpoint) -> Provider:
    from crushpy.llm.openai.provider import ChatProvider

    return ChatProvider(
        _openai_base(endpoint, endpoint.api_version), endpoint.key, **_openai_options(endpoint)
    )


def _responses(endpoint: Endpoint) -> Provider:
    from crushpy.llm.openai.provider import ResponsesProvider

    return ResponsesProvider(_openai_base(endpoint, ""), endpoint.key, **_openai_options(endpoint))


def _openai_base(endpoint: Endpoint, api_version: str) -> str:
    if endpoint.vendor != "azure":
        return endpoint.api_base or OPENAI_BASE
    from crushpy.llm.openai.provider import azure_base

    return azure_base(endpoint.api_base, endpoint.model.partition("/")[2], api_version)


def _anthropic(endpoint: Endpoint) -> Provider:
    from crushpy.llm.anthropic.provider import API_BASE, AnthropicProvider

    return AnthropicProvider(endpoint.api_base or API_BASE, endpoint.key, **_options(endpoint))


def _gemini(endpoint: Endpoint) -> Provider:
    from crushpy.llm.gemini.provider import API_BASE, GeminiProvider

    return GeminiProvider(endpoint.api_base or API_BASE, endpoint.key, **_options(endpoint))


def _options(endpoint: Endpoint) -> "HttpProviderOptions":
    """The options that every built-in client gets for its server."""
    options: HttpProviderOptions = {"strip": f"{endpoint.vendor}/"}
    if endpoint.key_origin:
        options["key_variable"] = endpoint.key_origin
    if endpoint.bearer:
        options["key_header"] = ""
    return options


def _openai_options(endpoint: Endpoint) -> "HttpProviderOptions":
    options = _options(endpoint)
    if endpoint.vendor == "azure":
        options.setdefault("key_header", "api-key")
    return options


def _litellm(endpoint: Endpoint) -> Provider:
    from crushpy.llm.litellm.pipe_protocol import ProviderAccess
    from crushpy.llm.litellm.provider import LiteLLMProvider

    # A key in its usual variable, for the usual server, is left to litellm: it knows how each is sent.
    passed = endpoint.api_base or endpoint.own_key_variable or endpoint.key_stored
    key = endpoint.key if passed else None
    provider = LiteLLMProvider(ProviderAccess(endpoint.api_base or None, key, endpoint.key_origin))
    if endpoint.vendor != "openai" and speaks_chat(endpoint.vendor, endpoint.api_base):
        return _AsOpenAI(provider)
    return provider


def _demo(endpoint: Endpoint) -> Provider:
    from crushpy.llm.demo import DemoProvider

    return DemoProvider(endpoint.window)


PROTOCOLS: dict[str, Callable[[Endpoint], Provider]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "litellm": _litellm,
    "demo": _demo,
}
"""Each protocol, and the function that makes its provider."""


# --- which of them -------------------------------------------------------------------------------------


def select(model: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> Provider:
    """The provider that answers for `model`. Raises AuthenticationFailed or BadRequest if none can."""
    endpoint = find_endpoint(model, settings, os.environ if environ is None else environ)
    return PROTOCOLS[protocol_of(endpoint, settings)](endpoint)


def protocol_of(endpoint: Endpoint, settings: "Settings") -> str:
    """The key in `PROTOCOLS` of what is spoken there: as the settings say, else the leanest that works."""
    if endpoint.vendor == "demo":
        return "demo"
    if settings.provider == "litellm":
        return "litellm"
    if endpoint.protocol != "auto":
        return endpoint.protocol
    if endpoint.vendor in VENDOR_PROTOCOLS:
        return VENDOR_PROTOCOLS[endpoint.vendor]
    if endpoint.vendor == "azure":
        if not ((endpoint.key or endpoint.key_stored) and endpoint.api_base):
            return "litellm"  # it knows further ways to authenticate there
        return "responses" if catalog.needs_responses_api(endpoint.model) else "chat"
    if not speaks_chat(endpoint.vendor, endpoint.api_base):
        return "litellm"
    official = endpoint.vendor == "openai" and is_official(endpoint.api_base)
    return "responses" if official and catalog.reasons_over_calls(endpoint.model) else "chat"


def spoken(model: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> str:
    """The key in `PROTOCOLS` of what is spoken to `model`, whether or not there is a key for it."""
    environ = os.environ if environ is None else environ
    return protocol_of(_found(model, settings, environ, open_keyring=False), settings)


def endpoint_of(
    provider: str,
    settings: "Settings",
    environ: Mapping[str, str] | None = None,
    *,
    open_keyring: bool = True,
) -> Endpoint:
    """Where the models of `provider` are served, and the key if there is one."""
    environ = os.environ if environ is None else environ
    return _found(f"{provider}/", settings, environ, open_keyring=open_keyring)


def warm_up(protocol: str) -> None:
    """Begins what a request in this protocol would have to wait for. Does not wait, and does not raise."""
    if protocol == "litellm":
        from crushpy.llm.litellm.provider import begin_loading

        begin_loading()


def waits_for_keyring(model: str, settings: "Settings") -> bool:
    """Whether `select` would have to open the system's keyring: some milliseconds, or as long as it hangs."""
    return _found(model, settings, os.environ, open_keyring=False).key_stored


def server_of(model: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> str:
    """The address at which `model` is served, without secrets; empty for the vendor's usual one."""
    environ = os.environ if environ is None else environ
    base = _found(model, settings, environ, open_keyring=False).api_base.strip()
    try:
        parts = urlsplit(base)
    except ValueError:  # no address at all: the first request will say so
        return ""
    if not base:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def find_endpoint(model: str, settings: "Settings", environ: Mapping[str, str]) -> Endpoint:
    """Where `model` is served. Raises AuthenticationFailed or BadRequest if no server is known."""
    if model.startswith("demo/"):
        if model != catalog.DEMO:
            raise BadRequest(f"There is no model {model}.", f"The built-in model is {catalog.DEMO}.")
        window = catalog.lookup(model, settings.models.get(model)).context_window
        return Endpoint(model, "demo", window=window)
    endpoint = _found(model, settings, environ)
    if not endpoint.vendor:
        raise BadRequest(f"There is no model {model}.", catalog.explain_unknown(model))
    _require_key(endpoint, settings)
    return endpoint


def _found(
    model: str, settings: "Settings", environ: Mapping[str, str], *, open_keyring: bool = True
) -> Endpoint:
    """What is known of where `model` is served; without a vendor if nothing is."""
    if model == catalog.DEMO:
        return Endpoint(model, "demo")
    vendor = catalog.provider_of(model)
    if not vendor and openai_base(environ):
        vendor = "openai"  # a bare name, and a server of the user's own that will know it
    found = find_key(vendor, settings, environ, open_keyring=open_keyring)
    chosen = settings.providers.get(vendor) or ProviderSettings()
    return Endpoint(
        model,
        vendor,
        chosen.api_base or vendors.base_of(vendor, environ),
        found.key,
        found.place.variable,
        bool(chosen.api_key_env),
        chosen.protocol,
        environ.get("AZURE_API_VERSION", "") if vendor == "azure" else "",
        key_stored=found.place.stored,
        key_problem=found.problem,
    )


def default_model(settings: "Settings", environ: Mapping[str, str] | None = None) -> str:
    """The model to use if the user named none: from the settings, else from the keys that exist."""
    environ = os.environ if environ is None else environ
    if settings.model:
        return settings.model
    for vendor in vendors.PROVIDERS:
        chosen = settings.providers.get(vendor.name) or ProviderSettings()
        if any(environ.get(name) for name in (chosen.api_key_env, *vendor.variables)):
            return vendor.default_model
    stored = stored_names()
    return next((vendor.default_model for vendor in vendors.PROVIDERS if vendor.name in stored), catalog.DEMO)


def is_official(base: str) -> bool:
    """Whether `base` (empty: the usual one) is OpenAI's own server."""
    host = urlsplit(base or OPENAI_BASE).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def openai_base(environ: Mapping[str, str]) -> str:
    """Where the environment says OpenAI's protocol is used; empty if it says nothing."""
    return vendors.base_of("openai", environ)


def speaks_chat(vendor: str, base: str) -> bool:
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

    @property
    def slow_to_begin(self) -> bool:
        return self._provider.slow_to_begin

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        name = f"openai/{request.model.partition('/')[2]}"
        return self._provider.stream(msgspec.structs.replace(request, model=name))

    async def close(self) -> None:
        await self._provider.close()


# --- keys ----------------------------------------------------------------------------------------------


def _require_key(endpoint: Endpoint, settings: "Settings") -> None:
    """Raises AuthenticationFailed if a key is needed and missing."""
    if endpoint.key_problem:
        raise AuthenticationFailed(
            f"There is no key for {endpoint.model}: {endpoint.key_problem}",
            f"Store it again: crushpy connect {endpoint.vendor}. {variable_hint(endpoint.vendor, settings)}",
        )
    if endpoint.key or not endpoint.key_variable:
        return
    official = endpoint.vendor == "openai" and is_official(endpoint.api_base)
    if not endpoint.own_key_variable and (endpoint.vendor == "azure" or (endpoint.api_base and not official)):
        return  # a server of the user's own may want none, and litellm knows other ways into Azure
    variables = (endpoint.key_variable,)
    if not endpoint.own_key_variable:
        variables = vendors.variables_of(endpoint.vendor)
    raise AuthenticationFailed(
        f"There is no key for {endpoint.model}: {' or '.join(variables)} is not set.",
        _no_key(endpoint.vendor),
    )


def _no_key(vendor: str) -> str:
    server = f"{BASE_VARIABLES[0]}=http://..." if vendor == "openai" else f"[providers.{vendor}] api_base"
    return (
        f"Set it in the environment, store it with `crushpy connect {vendor}`, use a server of your own "
        f"({server}), or another model with -m (`crushpy models` lists what is within reach; "
        f"{catalog.DEMO} needs no key)."
    )
