"""Finds and stores the keys of providers: in the environment, else in the system's keyring.

No file of ours ever contains a key. A file in the data folder lists the providers whose key was stored, so
that the keyring is loaded only if the environment has no key and the keyring has one.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import vendors
from crushpy.settings.schema import ProviderSettings

if TYPE_CHECKING:
    from crushpy.settings import Settings

MAX_KEY_CHARS = 4_096
"""Tokens of directories have about two thousand."""


class KeyOrigin(Data, frozen=True):
    """The location of a provider's key."""

    variable: str = ""
    """The environment variable for it, set or not; empty if unknown."""
    held: bool = False
    """That variable is set."""
    stored: bool = False
    """The environment has no key, and one was stored in the keyring."""


class FoundKey(Data, frozen=True):
    """A key and its location."""

    place: KeyOrigin = KeyOrigin()
    key: str | None = None
    problem: str = ""
    """Why the stored key could not be read."""


def find_key(
    provider: str,
    settings: "Settings",
    environ: Mapping[str, str] | None = None,
    *,
    open_keyring: bool = True,
) -> FoundKey:
    """The key of `provider`. Waits for the keyring, at most some seconds, only if the key is there."""
    environ = os.environ if environ is None else environ
    place = locate_key(provider, settings, environ)
    if place.held:
        if not place.variable.upper().endswith("_API_KEY"):  # such variables are always redacted
            from crushpy.security.redact import add_secret

            add_secret(environ[place.variable])
        return FoundKey(place, environ[place.variable])
    if not (place.stored and open_keyring):
        return FoundKey(place)
    from crushpy.llm.system_keyring import KeyringUnusable, read_secret
    from crushpy.security.redact import add_secret

    try:
        key = read_secret(provider)
    except KeyringUnusable as error:
        return FoundKey(place, problem=error.message)
    if not key:
        return FoundKey(place, problem="The keyring no longer contains the stored key.")
    add_secret(key)
    return FoundKey(place, key)


def locate_key(provider: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> KeyOrigin:
    """The location of the key of `provider`. Fast; never opens the keyring."""
    environ = os.environ if environ is None else environ
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = vendors.key_variables(provider, chosen.api_key_env)
    held = next((name for name in variables if environ.get(name)), "")
    if held:
        return KeyOrigin(held, held=True)
    guessed = () if provider in settings.providers else vendors.guessed_variables(provider)
    if any(environ.get(name) for name in guessed):
        return KeyOrigin()  # litellm reads it, and the environment takes precedence
    return KeyOrigin(next(iter(variables), ""), stored=provider in stored_names())


# --- storing -------------------------------------------------------------------------------------------


def stored_names(paths: Paths | None = None) -> frozenset[str]:
    """The providers whose key was stored."""
    try:
        text = (paths or Paths()).stored_keys.read_bytes()
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except (OSError, msgspec.DecodeError):
        return frozenset()


def store_key(provider: str, key: str, settings: "Settings") -> None:
    """Store a key in the keyring. Raises UsageError for an invalid key, KeyringUnusable with a hint."""
    from crushpy.llm.system_keyring import write_secret
    from crushpy.security.redact import add_secret

    key = checked_key(key)
    add_secret(key)
    with _add_hint(provider, settings):
        write_secret(provider, key)
    _record(provider, stored=True)


def remove_key(provider: str, settings: "Settings") -> bool:
    """Delete a key from the keyring, and stop looking for it there. Returns whether there was one."""
    from crushpy.llm.system_keyring import delete_secret

    recorded = provider in stored_names()
    if recorded:
        _record(provider, stored=False)  # first, in case the keyring is no longer available
    with _add_hint(provider, settings, "The key is no longer used. " if recorded else ""):
        return delete_secret(provider)


def require_key_storage(provider: str, settings: "Settings") -> str:
    """The name of the keyring that would be used. Raises KeyringUnusable with a hint."""
    from crushpy.llm.system_keyring import require_keyring

    with _add_hint(provider, settings):
        return require_keyring()


def checked_key(text: str) -> str:
    """`text` as a key. Raises UsageError if it is invalid; the error never contains it."""
    key = text.strip()
    if not key:
        raise UsageError("No key was given.", "Paste it at the prompt, or pass it on stdin.")
    if len(key) > MAX_KEY_CHARS:
        raise UsageError(f"The key is too long: more than {MAX_KEY_CHARS:,} characters.")
    if any(not "!" <= letter <= "~" for letter in key):
        raise UsageError(
            "A key cannot contain white space, control characters or non-ASCII letters.",
            "Copy the key alone, in one piece.",
        )
    if key[0] in "'\"" or key[-1] in "'\"":
        raise UsageError("The key is in quotes.", "Remove the quotes around the key.")
    return key


def require_provider(name: str, settings: "Settings") -> str:
    """The canonical form of a provider's name. Raises UsageError if it is unknown or needs no key."""
    from crushpy.llm import catalog

    wanted = name.strip()
    if wanted in settings.providers:
        return wanted
    wanted = wanted.lower()
    if wanted in vendors.KEYLESS:
        raise UsageError(f"There is no key to store for {wanted}.", vendors.KEYLESS[wanted])
    usual = [*vendors.BY_NAME, "azure"]
    known = {*usual, *settings.providers, *catalog.provider_names()} - {*vendors.KEYLESS}
    if wanted in known:
        return wanted
    import difflib

    from crushpy.security.redact import redact
    from crushpy.security.sanitize import one_line

    alias = {"claude": "anthropic", "google": "gemini", "gpt": "openai", "chatgpt": "openai", "grok": "xai"}
    part = wanted.partition("/")[0]
    near = [part] if part in known else difflib.get_close_matches(alias.get(part, part), known, 3)
    shown = one_line(wanted) if len(wanted) <= 30 and redact(wanted) == wanted else "of that name"
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"There is no provider {shown}.",
        f"{meant}Known are {', '.join(usual)}, those of your settings ([providers.<name>]), and litellm's.",
    )


def variable_hint(provider: str, settings: "Settings") -> str:
    """The hint that explains how to set the key of `provider` in the environment."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    known = (*vendors.key_variables(provider, chosen.api_key_env), *vendors.guessed_variables(provider))
    if provider in settings.providers and not vendors.key_variables(provider, chosen.api_key_env):
        return (
            f"Set {known[0]} in the environment instead, and name it once: "
            f"crushpy config set providers.{provider}.api_key_env {known[0]}"
        )
    return f"Set {known[0]} in the environment instead."


@contextmanager
def _add_hint(provider: str, settings: "Settings", before: str = "") -> Generator[None]:
    """Add a hint to an error of the keyring: how to set the key without it."""
    from crushpy.llm.system_keyring import KeyringUnusable

    try:
        yield
    except KeyringUnusable as error:
        raise KeyringUnusable(error.message, f"{before}{variable_hint(provider, settings)}") from None


def _record(provider: str, *, stored: bool) -> None:
    from crushpy.security.private_files import locked, write_private

    file = Paths().stored_keys
    try:
        with locked(file.with_name(f"{file.name}.lock"), 10):
            names = stored_names() | {provider} if stored else stored_names() - {provider}
            write_private(file, msgspec.json.encode(sorted(names)))
    except (OSError, TimeoutError) as error:
        raise CrushpyError(f"{file} could not be written: {error}.") from error
