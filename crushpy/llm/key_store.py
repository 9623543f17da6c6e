"""Finds and stores the keys of providers: in the environment, else in the system's keyring.

A file in the data folder lists the providers whose key was stored, so that the keyring is loaded only if the
environment has no key and the keyring has one. If the system has no keyring, and only if the user agrees, a
key is stored in a file of its own, which the agent's tools and the sandbox cannot read.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import vendors
from crushpy.security.private_files import read_stored, update_stored
from crushpy.settings.schema import ProviderSettings, Settings

T = TypeVar("T")
MAX_KEY_CHARS = 4_096
"""Tokens of directories have about two thousand."""


class KeyOrigin(Data, frozen=True):
    """The location of a provider's key; if it was read also the key."""

    variable: str = ""
    """The environment variable for it, set or not; empty if unknown."""
    held: bool = False
    """That variable is set."""
    stored: bool = False
    """The environment has no key, and one was stored in the keyring or in a file."""
    in_file: bool = False
    """It was stored in a file."""
    key: str | None = None
    problem: str = ""
    """Why the stored key could not be read."""

    @property
    def store(self) -> str:
        """Where a stored key is, for people."""
        return f"the file {Paths().key_file}" if self.in_file else "the keyring"


def find_key(
    provider: str, settings: Settings, environ: Mapping[str, str] = os.environ, *, open_keyring: bool = True
) -> KeyOrigin:
    """The key of `provider`. Waits for the keyring, at most some seconds, only if the key is there."""
    place = locate_key(provider, settings, environ)
    if place.held and place.variable.upper().endswith("_API_KEY"):  # such variables are always redacted
        return msgspec.structs.replace(place, key=environ[place.variable])
    if not (place.held or (place.stored and open_keyring)):
        return place
    from crushpy.llm.system_keyring import KeyringUnusable, read_secret
    from crushpy.security.redact import add_secret

    try:
        kept = environ[place.variable] if place.held else _keys_in_file().get(provider)
        key = kept or read_secret(provider)
    except KeyringUnusable as error:
        return msgspec.structs.replace(place, problem=error.message)
    if not key:
        return msgspec.structs.replace(place, problem="The keyring no longer contains the stored key.")
    add_secret(key)
    return msgspec.structs.replace(place, key=key)


def locate_key(provider: str, settings: Settings, environ: Mapping[str, str] = os.environ) -> KeyOrigin:
    """The location of the key of `provider`. Fast; never opens the keyring."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = vendors.key_variables(provider, chosen.api_key_env)
    held = next((name for name in variables if environ.get(name)), "")
    if held:
        return KeyOrigin(held, held=True)
    guessed = () if provider in settings.providers else vendors.guessed_variables(provider)
    if any(environ.get(name) for name in guessed):
        return KeyOrigin()  # litellm reads it, and the environment takes precedence
    in_file = provider in _keys_in_file()
    return KeyOrigin(next(iter(variables), ""), stored=in_file or provider in stored_names(), in_file=in_file)


# --- storing -------------------------------------------------------------------------------------------


def stored_names() -> frozenset[str]:
    """The providers whose key was stored."""
    return _names_in_keyring() | _keys_in_file().keys()


def _names_in_keyring() -> frozenset[str]:
    return frozenset(read_stored(Paths().stored_keys, list[str]) or ())


def _keys_in_file() -> dict[str, str]:
    return read_stored(Paths().key_file, dict[str, str]) or {}


def store_key(provider: str, key: str, settings: Settings, *, in_file: bool = False) -> None:
    """Store a key in the keyring, or in a file. Raises UsageError for an invalid key, KeyringUnusable with
    a hint."""
    from crushpy.llm.system_keyring import write_secret
    from crushpy.security.redact import add_secret

    key = checked_key(key)
    add_secret(key)
    if in_file:
        _update(Paths().key_file, dict[str, str], lambda keys: {**keys, provider: key})
        return
    with _add_hint(provider, settings, after=file_hint(provider)):
        write_secret(provider, key)
    _update(Paths().stored_keys, list[str], lambda names: sorted({*names, provider}))
    _forget_in_file(provider)


def remove_key(provider: str, settings: Settings) -> bool:
    """Delete a stored key, and stop looking for it. Returns whether there was one."""
    from crushpy.llm.system_keyring import delete_secret

    in_file = _forget_in_file(provider)
    recorded = provider in _names_in_keyring()
    if in_file and not recorded:
        return True
    if recorded:  # first, in case the keyring is no longer available
        _update(Paths().stored_keys, list[str], lambda names: sorted({*names} - {provider}))
    with _add_hint(provider, settings, "The key is no longer used. " if recorded else ""):
        return delete_secret(provider) or in_file


def require_key_storage(provider: str, settings: Settings) -> str:
    """The name of the keyring that would be used. Raises KeyringUnusable with a hint."""
    from crushpy.llm.system_keyring import require_keyring

    with _add_hint(provider, settings, after=file_hint(provider)):
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


def require_provider(name: str, settings: Settings) -> str:
    """The canonical form of a provider's name. Raises UsageError if it is unknown or needs no key."""
    from crushpy.llm import catalog

    wanted = name.strip()
    if wanted in settings.providers:
        return wanted
    wanted = wanted.lower()
    if wanted in vendors.KEYLESS:
        raise UsageError(f"There is no key to store for {wanted}.", vendors.KEYLESS[wanted])
    usual = [*vendors.BY_NAME, "azure"]
    known = {*usual, *settings.providers, *(name.partition("/")[0] for name in catalog.chat_names())}
    known -= {*vendors.KEYLESS}
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


def variable_hint(provider: str, settings: Settings) -> str:
    """The hint that explains how to set the key of `provider` in the environment."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    known = (*vendors.key_variables(provider, chosen.api_key_env), *vendors.guessed_variables(provider))
    if provider in settings.providers and not vendors.key_variables(provider, chosen.api_key_env):
        return (
            f"Set {known[0]} in the environment instead, and name it once: "
            f"crushpy config set providers.{provider}.api_key_env {known[0]}"
        )
    return f"Set {known[0]} in the environment instead."


def file_hint(provider: str) -> str:
    return f" Or store it in {Paths().key_file}, not encrypted: crushpy connect {provider} --file"


@contextmanager
def _add_hint(provider: str, settings: Settings, before: str = "", after: str = "") -> Generator[None]:
    """Add a hint to an error of the keyring: how to set the key without it."""
    from crushpy.llm.system_keyring import KeyringUnusable

    try:
        yield
    except KeyringUnusable as error:
        raise KeyringUnusable(error.message, f"{before}{variable_hint(provider, settings)}{after}") from None


def _forget_in_file(provider: str) -> bool:
    keys = _keys_in_file()
    if provider not in keys:
        return False
    _update(Paths().key_file, dict[str, str], lambda keys: {n: k for n, k in keys.items() if n != provider})
    return True


def _update(file: Path, kind: type[T], change: Callable[[T], T]) -> None:
    try:
        update_stored(file, kind, change, seconds=10)
    except (OSError, TimeoutError) as error:
        raise CrushpyError(f"{file} could not be written: {error}.") from error
