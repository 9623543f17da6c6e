"""The one place where a provider's key is found: in the environment, then in the system's keyring.

No file of ours ever holds a key. A note in the data folder holds the names of the providers whose key was
stored, so that the keyring is loaded only if the environment has no key and there is one to read.
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

LONGEST_KEY = 4_096
"""Characters; tokens of directories have about two thousand."""


class KeyOrigin(Data, frozen=True):
    """Where the key of a provider is."""

    variable: str = ""
    """The environment variable that holds it or would; empty where crushpy knows none."""
    held: bool = False
    """That variable holds it."""
    stored: bool = False
    """The environment has none, and the keyring was given one."""


class FoundKey(Data, frozen=True):
    """A key, and where it was."""

    place: KeyOrigin = KeyOrigin()
    key: str | None = None
    problem: str = ""
    """Why the stored one could not be read."""


def find_key(
    provider: str,
    settings: "Settings",
    environ: Mapping[str, str] | None = None,
    *,
    open_keyring: bool = True,
) -> FoundKey:
    """The key of `provider`. Waits for the keyring, some seconds at most, only if the key is stored there."""
    environ = os.environ if environ is None else environ
    place = locate_key(provider, settings, environ)
    if place.held:
        if not place.variable.upper().endswith("_API_KEY"):  # those are known to be secret by their name
            from crushpy.security.redact import hide_from_now_on

            hide_from_now_on(environ[place.variable])
        return FoundKey(place, environ[place.variable])
    if not (place.stored and open_keyring):
        return FoundKey(place)
    from crushpy.llm.system_keyring import KeyringUnusable, read_secret
    from crushpy.security.redact import hide_from_now_on

    try:
        key = read_secret(provider)
    except KeyringUnusable as error:
        return FoundKey(place, problem=error.message)
    if not key:
        return FoundKey(place, problem="The keyring no longer has the key that was stored.")
    hide_from_now_on(key)
    return FoundKey(place, key)


def locate_key(provider: str, settings: "Settings", environ: Mapping[str, str] | None = None) -> KeyOrigin:
    """Where the key of `provider` is. Costs next to nothing and never opens the keyring."""
    environ = os.environ if environ is None else environ
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = vendors.key_variables(provider, chosen.api_key_env)
    held = next((name for name in variables if environ.get(name)), "")
    if held:
        return KeyOrigin(held, held=True)
    guessed = () if provider in settings.providers else vendors.guessed_variables(provider)
    if any(environ.get(name) for name in guessed):
        return KeyOrigin()  # litellm reads it there, and the environment goes first
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
    from crushpy.security.redact import hide_from_now_on

    key = checked_key(key)
    hide_from_now_on(key)
    with _way_out(provider, settings):
        write_secret(provider, key)
    _note(provider, stored=True)


def remove_key(provider: str, settings: "Settings") -> bool:
    """Takes a key out of the keyring; whether there was one. It is not looked for there from now on."""
    from crushpy.llm.system_keyring import delete_secret

    noted = provider in stored_names()
    if noted:
        _note(provider, stored=False)  # first: a keyring that is gone must not be asked for ever
    with _way_out(provider, settings, "The key is no longer used. " if noted else ""):
        return delete_secret(provider)


def require_key_storage(provider: str, settings: "Settings") -> str:
    """The name of the keyring that would be used. Raises KeyringUnusable with the way out."""
    from crushpy.llm.system_keyring import require_keyring

    with _way_out(provider, settings):
        return require_keyring()


def checked_key(text: str) -> str:
    """`text` as a key. Raises UsageError for what cannot be one; the error never shows it."""
    key = text.strip()
    if not key:
        raise UsageError("No key was given.", "Paste it at the prompt, or hand it over on stdin.")
    if len(key) > LONGEST_KEY:
        raise UsageError(f"The key is too long: more than {LONGEST_KEY:,} characters.")
    if any(not "!" <= letter <= "~" for letter in key):
        raise UsageError(
            "A key cannot contain white space, control characters or non-ASCII letters.",
            "Copy the key alone, in one piece.",
        )
    if key[0] in "'\"" or key[-1] in "'\"":
        raise UsageError("The key is in quotes.", "Remove the quotes around the key.")
    return key


def require_provider(name: str, settings: "Settings") -> str:
    """`name` as crushpy writes it. Raises UsageError for one that takes no key or is unknown."""
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
    """How to give the key of `provider` in the environment, in words."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    known = (*vendors.key_variables(provider, chosen.api_key_env), *vendors.guessed_variables(provider))
    if provider in settings.providers and not vendors.key_variables(provider, chosen.api_key_env):
        return (
            f"Set {known[0]} in the environment instead, and name it once: "
            f"crushpy config set providers.{provider}.api_key_env {known[0]}"
        )
    return f"Set {known[0]} in the environment instead."


@contextmanager
def _way_out(provider: str, settings: "Settings", before: str = "") -> Generator[None]:
    """Adds to an error of the keyring what to do without it."""
    from crushpy.llm.system_keyring import KeyringUnusable

    try:
        yield
    except KeyringUnusable as error:
        raise KeyringUnusable(error.message, f"{before}{variable_hint(provider, settings)}") from None


def _note(provider: str, *, stored: bool) -> None:
    from crushpy.security.private_files import locked, write_private

    file = Paths().stored_keys
    try:
        with locked(file.with_name(f"{file.name}.lock"), 10):
            names = stored_names() | {provider} if stored else stored_names() - {provider}
            write_private(file, msgspec.json.encode(sorted(names)))
    except (OSError, TimeoutError) as error:
        raise CrushpyError(f"{file} could not be written: {error}.") from error
