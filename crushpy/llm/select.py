"""Which provider answers for a model, with which key and at which address; and which model, if none is named.

Nothing is contacted here, and litellm is not imported: a missing key or a wrong name is told before any
request.
"""

import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from crushpy.llm import catalog, vendors
from crushpy.llm.errors import AuthenticationFailed, BadRequest
from crushpy.llm.protocol import Piece, Provider, Request
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.settings import Settings

OPENAI_BASE = "https://api.openai.com/v1"
BASE_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")

_OWN_PROTOCOL = frozenset(
    {
        *("anthropic", "gemini", "vertex_ai", "bedrock", "azure", "azure_ai", "cohere", "replicate"),
        *("sagemaker", "watsonx", "huggingface", "databricks", "snowflake", "cloudflare", "github_copilot"),
    }
)
"""Providers whose servers do not speak OpenAI's protocol, wherever they stand: litellm speaks theirs."""


def select(model: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> Provider:
    """The provider that answers for `model`. Raises AuthenticationFailed or BadRequest where none can."""
    environ = os.environ if environ is None else environ
    if model.startswith("demo/"):
        return _demo(model, settings)
    name = catalog.provider_of(model)
    if not name and openai_base(environ):
        name = "openai"  # a bare name, and a server of the user's own that will know it
    if not name:
        raise BadRequest(f"There is no model {model}.", explain_unknown(model))
    chosen = settings.providers.get(name) or ProviderSettings()
    base = chosen.api_base or (openai_base(environ) if name == "openai" else "")
    key = _key(model, name, chosen, base, environ)
    variable = chosen.api_key_env or next(iter(vendors.variables_of(name)), "")
    if settings.provider != "litellm" and _fits_wire(model, name, base):
        from crushpy.llm.openai.provider import WireProvider

        return WireProvider(
            base or OPENAI_BASE, key, strip=f"{name}/", key_variable=variable or "OPENAI_API_KEY"
        )
    from crushpy.llm.litellm.provider import LiteLLMProvider

    # A key in its usual variable, for the usual server, is left to litellm: it knows how each is sent.
    given = key if base or chosen.api_key_env else None
    provider = LiteLLMProvider(base or None, given, key_variable=variable)
    return _AsOpenAI(provider) if name != "openai" and _speaks_openai(name, base) else provider


def default_model(settings: "Settings", environ: Mapping[str, str] | None = None) -> str:
    """The model to use where the user named none: by the settings, else by the keys that are there."""
    environ = os.environ if environ is None else environ
    if settings.model:
        return settings.model
    for provider in vendors.PROVIDERS:
        chosen = settings.providers.get(provider.name) or ProviderSettings()
        if environ.get(chosen.api_key_env) or vendors.find_key(provider.name, environ):
            return provider.default_model
    return catalog.DEMO


def explain_unknown(model: str) -> str:
    """What to tell a user whose model nobody knows: the nearest names, and where to see them all."""
    near = catalog.suggest(model)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return (
        f"{meant}`crushpy models --all` lists every known model; a name has its provider first: openai/gpt-5."
    )


def is_official(base: str) -> bool:
    """Whether `base` (empty: the usual one) is OpenAI's own server."""
    host = urlsplit(base or OPENAI_BASE).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _demo(model: str, settings: "Settings") -> Provider:
    if model != catalog.DEMO:
        raise BadRequest(f"There is no model {model}.", f"The built-in model is {catalog.DEMO}.")
    from crushpy.llm.demo import DemoProvider

    return DemoProvider(catalog.lookup(model, settings.models.get(model)).context_window)


def _fits_wire(model: str, name: str, base: str) -> bool:
    """Whether the lean wire can serve this model there."""
    if name == "openai" and is_official(base):
        return not catalog.needs_responses_api(model)
    return _speaks_openai(name, base)


def _speaks_openai(name: str, base: str) -> bool:
    """Whether the server of this provider speaks OpenAI's chat protocol."""
    if name == "openai":
        return True
    if not base or name in _OWN_PROTOCOL:
        return False
    if name.startswith("ollama"):  # its own protocol at the root, OpenAI's below /v1
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


def _key(
    model: str, name: str, chosen: ProviderSettings, base: str, environ: Mapping[str, str]
) -> str | None:
    """The key to send; None where none is needed. The key of one provider never goes to another's server."""
    variables = (chosen.api_key_env,) if chosen.api_key_env else vendors.variables_of(name)
    key = next((environ[variable] for variable in variables if environ.get(variable)), None)
    if key or not variables:
        return key
    own_server = bool(base) and not (name == "openai" and is_official(base))
    if own_server and not chosen.api_key_env:
        return None
    raise AuthenticationFailed(
        f"There is no key for {model}: {' or '.join(variables)} is not set.", _no_key(name)
    )


def _no_key(name: str) -> str:
    server = f"{BASE_VARIABLES[0]}=http://..." if name == "openai" else f"[providers.{name}] api_base"
    return (
        f"Set it in the environment, or use a server of your own ({server}), or another model with -m "
        f"(`crushpy models` lists what is within reach; {catalog.DEMO} needs no key)."
    )


def openai_base(environ: Mapping[str, str]) -> str:
    """Where the environment says OpenAI's protocol is spoken; empty where it says nothing."""
    return next((environ[name].strip() for name in BASE_VARIABLES if environ.get(name, "").strip()), "")
