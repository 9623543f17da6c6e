"""Creates the provider for a model, with its key and address; and chooses the default model.

No server is contacted and litellm is not imported: a missing key or a wrong name is reported before any
request. A new protocol is a package beside this file and one branch of `create_client`.
"""

import os
import sys
from importlib import import_module
from threading import Thread
from urllib.parse import urlsplit

import msgspec

from crushpy.llm import catalog, vendors
from crushpy.llm.anthropic.thinking_binding import binds_thinking
from crushpy.llm.errors import AuthenticationFailed, BadRequest
from crushpy.llm.key_store import find_key, stored_names, variable_hint
from crushpy.llm.protocol import Provider
from crushpy.llm.vendors import Endpoint, is_official
from crushpy.settings.schema import ProviderSettings, Settings

BASE_VARIABLES = vendors.BY_NAME["openai"].base_variables
VENDOR_PROTOCOLS = {"anthropic": "anthropic", "gemini": "gemini", "ollama": "ollama", "ollama_chat": "ollama"}
"""The protocol of vendors with one of their own, at any address."""
UNNAMED = "openai/"
"""The default model if there is only the address of a server: `model_listing.choose_default` asks it."""

_HTTP = "crushpy.llm.http_provider"


# --- the protocols -------------------------------------------------------------------------------------


PROTOCOLS = ("chat", "responses", "anthropic", "gemini", "ollama", "litellm", "demo")


def create_client(protocol: str, endpoint: Endpoint) -> Provider:
    """A provider that speaks one of `PROTOCOLS`. Only the module that it needs is imported."""
    if protocol == "demo":
        from crushpy.llm.demo import DemoProvider

        return DemoProvider(endpoint.window)
    if protocol == "litellm":
        return _create_litellm(endpoint)
    if protocol == "anthropic":
        from crushpy.llm.anthropic.provider import AnthropicProvider

        return AnthropicProvider(endpoint)
    if protocol == "gemini":
        from crushpy.llm.gemini.provider import GeminiProvider

        return GeminiProvider(endpoint)
    if protocol == "ollama":
        from crushpy.llm.ollama.provider import OllamaProvider

        return OllamaProvider(endpoint)
    from crushpy.llm.openai.provider import ChatProvider, ResponsesProvider, azure_base

    if endpoint.vendor == "azure":
        version = os.environ.get("AZURE_API_VERSION", "") if protocol == "chat" else ""
        base = azure_base(endpoint.api_base, endpoint.model.partition("/")[2], version)
        endpoint = msgspec.structs.replace(endpoint, api_base=base)
    return (ChatProvider if protocol == "chat" else ResponsesProvider)(endpoint)


def _create_litellm(endpoint: Endpoint) -> Provider:
    from crushpy.llm.litellm.provider import LiteLLMProvider, ProviderAccess

    # litellm reads a key from its usual variable itself: it knows how each server expects it.
    explicit = endpoint.api_base or endpoint.own_key_variable or endpoint.key_stored
    # litellm knows a provider that the user defined only as an OpenAI-compatible server.
    as_openai = endpoint.vendor != "openai" and speaks_chat(endpoint.vendor, endpoint.api_base)
    key = endpoint.key if explicit else None
    access = ProviderAccess(endpoint.api_base or None, key, endpoint.key_origin)
    return LiteLLMProvider(access, as_openai=as_openai)


# --- endpoints -----------------------------------------------------------------------------------------


def create_provider(model: str, settings: Settings) -> Provider:
    """The provider for `model`. Raises AuthenticationFailed or BadRequest if there is none."""
    endpoint = find_endpoint(model, settings)
    return create_client(endpoint_protocol(endpoint, settings), endpoint)


def endpoint_protocol(endpoint: Endpoint, settings: Settings) -> str:
    """One of `PROTOCOLS`: from the settings, else the simplest protocol that works."""
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
            return "litellm"  # it supports other ways to authenticate
        return "responses" if catalog.needs_responses_api(endpoint.model) else "chat"
    if not speaks_chat(endpoint.vendor, endpoint.api_base):
        return "litellm"
    official = endpoint.vendor == "openai" and not endpoint.own_server
    return "responses" if official and catalog.reasons_over_calls(endpoint.model) else "chat"


def protocol_for(model: str, settings: Settings) -> str:
    """One of `PROTOCOLS` for `model`, even if there is no key for it."""
    return endpoint_protocol(locate_endpoint(model, settings, open_keyring=False), settings)


def warm_up(protocol: str) -> None:
    """Start loading what a request in this protocol needs. Does not wait, and does not raise."""
    if protocol == "litellm":
        from crushpy.llm.litellm.provider import begin_loading

        begin_loading()
    elif protocol != "demo" and _HTTP not in sys.modules:
        Thread(target=import_module, args=(_HTTP,), daemon=True).start()


def waits_for_keyring(model: str, settings: Settings) -> bool:
    """Whether `create_provider` opens the system's keyring, which may hang until its timeout."""
    return locate_endpoint(model, settings, open_keyring=False).key_stored


def server_address(model: str, settings: Settings) -> str:
    """The address of the server of `model`, without secrets; empty for the vendor's default."""
    endpoint = locate_endpoint(model, settings, open_keyring=False)
    base = endpoint.api_base.strip()
    if not base and VENDOR_PROTOCOLS.get(endpoint.vendor) == "ollama":
        base = vendors.OLLAMA_BASE
    return without_secrets(base)


def without_secrets(base: str) -> str:
    """An address without credentials, query and final slash; empty if it is not one."""
    try:
        parts = urlsplit(base)
    except ValueError:  # reported by the first request
        return ""
    if not base:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def find_endpoint(model: str, settings: Settings) -> Endpoint:
    """The endpoint of `model`. Raises AuthenticationFailed or BadRequest if it cannot be used."""
    if model.startswith("demo/") and model != catalog.DEMO:
        raise BadRequest(f"There is no model {model}.", f"The built-in model is {catalog.DEMO}.")
    endpoint = locate_endpoint(model, settings)
    if not endpoint.vendor:
        raise BadRequest(f"There is no model {model}.", catalog.explain_unknown(model))
    _require_key(endpoint, settings)
    return endpoint


def locate_endpoint(model: str, settings: Settings, *, open_keyring: bool = True) -> Endpoint:
    """The endpoint of `model`, or of a provider (`name/`), which may lack a key, or a vendor if unknown."""
    own = settings.models.get(model)
    if model == catalog.DEMO:
        return Endpoint(model, "demo", window=catalog.lookup(model, own).context_window)
    vendor = catalog.provider_of(model)
    if not vendor and vendors.base_of("openai"):
        vendor = "openai"  # a bare name is passed to the user's own server
    found = find_key(vendor, settings, open_keyring=open_keyring)
    chosen = settings.providers.get(vendor) or ProviderSettings()
    return Endpoint(
        model,
        vendor,
        chosen.api_base or vendors.base_of(vendor),
        found.key,
        found.variable,
        bool(chosen.api_key_env),
        chosen.protocol,
        key_stored=found.stored,
        key_problem=found.problem,
        timeout_s=chosen.timeout_s,
        text_calls=own.text_calls if own else None,
    )


def default_model(settings: Settings) -> str:
    """The model to use if none is named: from the settings, else by the available keys; may be `UNNAMED`."""
    if settings.model:
        return settings.model
    has_own = bool(custom_base("openai", settings))
    for vendor in vendors.PROVIDERS:
        chosen = settings.providers.get(vendor.name) or ProviderSettings()
        if any(os.environ.get(name) for name in (chosen.api_key_env, *vendor.variables)):
            return UNNAMED if vendor.name == "openai" and has_own else vendor.default_model
    if has_own:
        return UNNAMED
    stored = stored_names()
    return next((vendor.default_model for vendor in vendors.PROVIDERS if vendor.name in stored), catalog.DEMO)


def custom_base(provider: str, settings: Settings) -> str:
    """The address of a provider, if it is not the default; else empty."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    base = chosen.api_base or vendors.base_of(provider)
    return "" if provider == "openai" and is_official(base) else base


def speaks_chat(vendor: str, base: str) -> bool:
    """Whether this vendor's server speaks OpenAI's chat protocol."""
    if vendor == "openai":
        return True
    if not base or vendors.vendor_of(vendor).own_protocol:
        return False
    if vendor.startswith("ollama"):  # OpenAI's protocol is below /v1
        return base.rstrip("/").endswith("/v1")
    return True


# --- keys ----------------------------------------------------------------------------------------------


def _require_key(endpoint: Endpoint, settings: Settings) -> None:
    """Raise AuthenticationFailed if a key is needed and missing."""
    if endpoint.key_problem:
        raise AuthenticationFailed(
            f"There is no key for {endpoint.model}: {endpoint.key_problem}",
            f"Store it again: crushpy connect {endpoint.vendor}. {variable_hint(endpoint.vendor, settings)}",
        )
    if endpoint.key or not endpoint.key_variable:
        return
    if not endpoint.own_key_variable and (endpoint.vendor == "azure" or endpoint.own_server):
        return  # the user's own server may need none, and litellm has other ways to authenticate with Azure
    vendor = endpoint.vendor
    variables = vendors.key_variables(vendor, endpoint.key_variable if endpoint.own_key_variable else "")
    server = f"{BASE_VARIABLES[0]}=http://..." if vendor == "openai" else f"[providers.{vendor}] api_base"
    raise AuthenticationFailed(
        f"There is no key for {endpoint.model}: {' or '.join(variables)} is not set.",
        f"Set it in the environment, store it with `crushpy connect {vendor}`, use your own server "
        f"({server}), or another model with -m (`crushpy models` lists those you can use; "
        f"{catalog.DEMO} needs no key).",
    )


# --- the place of the context status in a request: the model sees it last, and no adapter moves it
#
# It depends on the model's name and the protocol, never on the address. Claude's models that bind their
# thinking to everything before it get a system message that stays where it is. OpenAI's protocols keep a
# trailing system message in place. Our clients for Anthropic and Gemini put the status into the last message,
# each in its own form. litellm's adapters to other protocols would hoist a trailing message into the system
# prompt, turn it into a note or repeat the tools after it: there it is appended to the last message's text.


_HOISTED_BEHIND_ROUTER = ("anthropic/", "google/", "amazon/")


def chosen_placement(model: str, settings: Settings) -> str:
    """The placement in the settings; empty if it is not set."""
    chosen = settings.compaction.status_placement
    if chosen != "auto":
        return chosen
    own = settings.models.get(model)
    return (own.status_placement if own is not None else None) or ""


def usual_placement(model: str, settings: Settings) -> str:
    """The placement that the protocol of `model` accepts: `message`, `append` or `keep`."""
    vendor, endpoint = catalog.provider_of(model), locate_endpoint(model, settings, open_keyring=False)
    if vendor == "openrouter":
        return "append" if model.partition("/")[2].startswith(_HOISTED_BEHIND_ROUTER) else "message"
    protocol = endpoint_protocol(endpoint, settings)
    if protocol == "anthropic" and binds_thinking(model):
        return "keep"
    if protocol in ("anthropic", "gemini"):
        return "append"
    if protocol != "litellm":
        return "message"
    keeps = not vendor or vendors.vendor_of(vendor).keeps_trailing_system
    return "message" if keeps or speaks_chat(vendor, endpoint.api_base) else "append"
