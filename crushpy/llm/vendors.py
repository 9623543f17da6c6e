"""The known vendors (`vendors.toml`), the variables for their keys and addresses, and one endpoint."""

import os
import re
from urllib.parse import urlsplit

import msgspec

from crushpy.core.messages import Data
from crushpy.util.data_table import read_table


class Vendor(Data, frozen=True):
    """A row of `vendors.toml`, which describes the fields."""

    name: str = ""
    default_model: str = ""
    usual_base: str = ""
    variables: tuple[str, ...] = ()
    base_variables: tuple[str, ...] = ()
    litellm_variables: tuple[str, ...] = ()
    keyless: str = ""
    own_protocol: bool = False
    keeps_trailing_system: bool = False
    local: str = ""
    port: int | None = None


_ROWS = read_table(__file__, "vendors", dict[str, Vendor])
VENDORS = {name: msgspec.structs.replace(row, name=name) for name, row in _ROWS.items()}
PROVIDERS = [vendor for vendor in VENDORS.values() if vendor.default_model]
"""Those whose keys are found automatically, in order of preference for the default model."""
BY_NAME = {vendor.name: vendor for vendor in PROVIDERS}
AZURE_BASES = VENDORS["azure"].base_variables
OPENAI_BASE = VENDORS["openai"].usual_base
OLLAMA_BASE = "http://127.0.0.1:11434"

BASES = [name for vendor in VENDORS.values() if not vendor.local for name in vendor.base_variables]
"""The variables for addresses of vendors."""


def vendor_of(name: str) -> Vendor:
    """What is known about a vendor; nothing about an unknown one."""
    return VENDORS.get(name, Vendor())


def key_variables(provider: str, own: str = "") -> tuple[str, ...]:
    """The variables that are searched for the key of `provider`; `own`: the only one, from the settings.

    The key of one vendor is never sent to another vendor's server.
    """
    return (own,) if own else vendor_of(provider).variables


def guessed_variables(provider: str) -> tuple[str, ...]:
    """The variables in which litellm looks for the key of a provider that is not in the tables above."""
    if key_variables(provider):
        return ()
    usual = f"{re.sub('[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"
    return vendor_of(provider).litellm_variables or (usual,)


def base_of(provider: str) -> str:
    """The address of `provider` from the environment; empty if there is none."""
    vendor = vendor_of(provider)
    given = (os.environ.get(name, "").strip() for name in vendor.base_variables)
    base = next(filter(None, given), "")
    return _complete_host(base) if base and vendor.local else base


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


def on_loopback(api_base: str) -> bool:
    """Whether this is an address of this machine; False also if it is invalid."""
    from crushpy.http.common import HttpError, parse_url
    from crushpy.http.routing import is_loopback

    try:
        return is_loopback(parse_url(api_base).host)
    except HttpError:
        return False


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
    window: int | None = None
    """For servers that let the client choose it, and for the built-in model."""
    key_stored: bool = False
    """The key is in the system's keyring."""
    key_problem: str = ""
    """Why the key could not be read from the keyring."""
    timeout_s: float | None = None
    """How long the server may be silent, from the settings."""
    text_calls: bool | None = None
    """Whether to read tool calls from the model's text; None: if the server is on this machine."""

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
