"""The known providers: the variables for their keys and addresses, and a default model of each.

Contains names of variables, never keys.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from crushpy.core.messages import Data


class KnownProvider(Data, frozen=True):
    name: str
    """litellm's name, the part of a model's name before the slash."""
    default_model: str
    """The model to use if only a key is set. It is in the catalog and supports tools."""
    usual_base: str
    """The address of its list of models, in OpenAI's form unless the vendor has a protocol of its own."""
    variables: tuple[str, ...]
    """Environment variables for its key, the usual one first."""
    base_variables: tuple[str, ...] = ()
    """Environment variables for an address other than the default."""


def _known(
    name: str, model: str, base: str, variables: tuple[str, ...] = (), base_variables: tuple[str, ...] = ()
) -> KnownProvider:
    """`variables`: if they are not NAME_API_KEY alone."""
    usual = (f"{name.upper()}_API_KEY",)
    return KnownProvider(name, f"{name}/{model}", base, variables or usual, base_variables)


PROVIDERS = (
    _known(
        *("anthropic", "claude-sonnet-5-5", "https://api.anthropic.com"),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ),
    _known(
        *("openai", "gpt-5.6", "https://api.openai.com/v1"),
        base_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ),
    _known(
        *("gemini", "gemini-pro-latest", "https://generativelanguage.googleapis.com"),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
    ),
    _known(
        *("openrouter", "anthropic/claude-sonnet-4.6", "https://openrouter.ai/api/v1"),
        ("OPENROUTER_API_KEY", "OR_API_KEY"),
    ),
    _known("deepseek", "deepseek-v4-pro", "https://api.deepseek.com/v1"),
    _known("xai", "grok-4.7", "https://api.x.ai/v1"),
    _known("mistral", "devstral-latest", "https://api.mistral.ai/v1"),
    _known("moonshot", "kimi-k3", "https://api.moonshot.ai/v1"),
    _known("zai", "glm-5.3", "https://api.z.ai/api/paas/v4"),
    _known("dashscope", "qwen3-coder-plus", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    _known("groq", "openai/gpt-oss-120b", "https://api.groq.com/openai/v1"),
    _known("cerebras", "gpt-oss-120b", "https://api.cerebras.ai/v1"),
    _known(
        *("together_ai", "moonshotai/Kimi-K3", "https://api.together.xyz/v1"),
        ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"),
    ),
    _known(
        *("fireworks_ai", "kimi-k3", "https://api.fireworks.ai/inference/v1"),
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    ),
)
"""In order of preference for the default model."""

OWN_PROTOCOL = frozenset(
    {
        *("anthropic", "gemini", "vertex_ai", "bedrock", "azure", "azure_ai", "cohere", "replicate"),
        *("sagemaker", "watsonx", "huggingface", "databricks", "snowflake", "cloudflare", "github_copilot"),
    }
)
"""Vendors whose servers do not speak OpenAI's protocol, at any address."""

BY_NAME = {provider.name: provider for provider in PROVIDERS}

AZURE_KEYS = ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN")
AZURE_BASES = ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT")
"""Azure has no fixed model names: a deployment is named by its administrator."""
OPENAI_BASE = BY_NAME["openai"].usual_base
OLLAMA_BASE = "http://127.0.0.1:11434"
OLLAMA_BASES = ("OLLAMA_API_BASE", "OLLAMA_HOST")
"""The second is Ollama's own, and may lack a scheme or a port."""

BASES = (*(name for provider in PROVIDERS for name in provider.base_variables), *AZURE_BASES)
"""All variables for addresses."""

KEYLESS = {
    "demo": "demo/tour is built in and needs no key.",
    "bedrock": "Bedrock takes AWS credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile).",
    "sagemaker": "SageMaker takes AWS credentials, as Bedrock does.",
    "vertex_ai": "Vertex takes Google's credentials (GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth).",
    "github_copilot": "GitHub Copilot logs in through litellm, in the browser.",
}
"""Providers without a single key, and how they authenticate."""

_ELSEWHERE = {
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "friendliai": ("FRIENDLI_TOKEN", "FRIENDLIAI_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "watsonx": ("WATSONX_APIKEY", "WATSONX_API_KEY", "WX_API_KEY"),
}
"""Variables that litellm reads under names other than <PROVIDER>_API_KEY."""


def variables_of(provider: str) -> tuple[str, ...]:
    """The variables for the key of `provider`; empty if unknown."""
    known = BY_NAME.get(provider)
    return known.variables if known is not None else ()


def key_variables(provider: str, own: str = "") -> tuple[str, ...]:
    """The variables that are searched for the key of `provider`; `own`: the only one, from the settings.

    The key of one vendor is never sent to another vendor's server.
    """
    if own:
        return (own,)
    return AZURE_KEYS if provider == "azure" else variables_of(provider)


def guessed_variables(provider: str) -> tuple[str, ...]:
    """The variables in which litellm looks for the key of a provider that is not in the tables above."""
    if key_variables(provider):
        return ()
    return _ELSEWHERE.get(provider) or (f"{re.sub('[^A-Za-z0-9]', '_', provider).upper()}_API_KEY",)


def base_of(provider: str, environ: Mapping[str, str]) -> str:
    """The address of `provider` from the environment; empty if there is none."""
    known = BY_NAME.get(provider)
    names = known.base_variables if known else AZURE_BASES if provider == "azure" else ()
    if provider in ("ollama", "ollama_chat"):
        names = OLLAMA_BASES
    base = next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")
    return _complete_host(base) if base and names is OLLAMA_BASES else base


def server_root(api_base: str) -> str:
    """The address of a local server without /v1 or /api."""
    return api_base.rstrip("/").removesuffix("/v1").removesuffix("/api")


def _complete_host(base: str) -> str:
    """An address in OLLAMA_HOST, as Ollama reads it: `0.0.0.0`, `host:1234` and `:1234` are complete."""
    scheme, given, rest = base.rpartition("://")
    host, slash, path = rest.partition("/")
    found = re.search(r":\d+$", host)
    name, port = host[: found.start()] if found else host, found[0] if found else "" if given else ":11434"
    every = ("", "0.0.0.0", "[::]")  # noqa: S104 - what a server listens on is not where a client connects
    return f"{scheme or 'http'}://{'127.0.0.1' if name in every else name}{port}{slash}{path}"


# --- one endpoint


def is_official(base: str) -> bool:
    """Whether `base` (empty: the default) is OpenAI's own server."""
    host = urlsplit(base or OPENAI_BASE).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


class Endpoint(Data, frozen=True):
    """The address of a model, and how to authenticate there."""

    model: str
    vendor: str
    """The part of the model's name before the slash, given or implied."""
    api_base: str = ""
    """Empty: the vendor's default address."""
    key: str | None = None
    key_variable: str = ""
    """The environment variable for the key, for hints."""
    own_key_variable: bool = False
    """The settings name that variable."""
    protocol: str = "auto"
    """The protocol set in the settings."""
    api_version: str = ""
    """Part of Azure's older addresses."""
    window: int | None = None
    """For servers that let the client choose it, and for the built-in model."""
    key_stored: bool = False
    """The key is in the system's keyring."""
    key_problem: str = ""
    """Why the key could not be read from the keyring."""

    @property
    def bearer(self) -> bool:
        """Whether the key is a token, as issued by gateways and directories."""
        return self.key_variable.endswith("_TOKEN")

    @property
    def served_name(self) -> str:
        """The server's name for the model."""
        return self.model.removeprefix(f"{self.vendor}/")

    @property
    def own_server(self) -> bool:
        """Whether the address is the user's own, and not OpenAI's."""
        return bool(self.api_base) and not (self.vendor == "openai" and is_official(self.api_base))

    @property
    def key_origin(self) -> str:
        """The source of the key, for hints: the variable, or the command that stores another."""
        return f"crushpy connect {self.vendor}" if self.key_stored else self.key_variable
