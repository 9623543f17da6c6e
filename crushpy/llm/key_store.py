"""Finds and stores the keys of providers: in the environment, else in the system's keyring.

A file in the data folder lists the providers whose key was stored, so that the keyring is loaded only if the
environment has no key and the keyring has one. If the system has no keyring, and only if the user agrees, the
key itself is stored in that file, which the agent's tools and the sandbox cannot read.
"""

import importlib
import logging
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.llm import vendors
from crushpy.security.private_files import read_stored, update_stored
from crushpy.settings.schema import ProviderSettings, Settings

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

    @property
    def state(self) -> str:
        """Whether there is a key, for people."""
        if self.stored and not self.held:
            return f"key stored in {self.store}"
        return f"{self.variable or 'a variable'} is {'set' if self.held else 'not set'}"


def find_key(provider: str, settings: Settings, *, open_keyring: bool = True) -> KeyOrigin:
    """The key of `provider`. Waits for the keyring, at most some seconds, only if the key is there."""
    place = locate_key(provider, settings)
    if place.held and place.variable.upper().endswith("_API_KEY"):  # such variables are always redacted
        return msgspec.structs.replace(place, key=os.environ[place.variable])
    if not (place.held or (place.stored and open_keyring)):
        return place
    from crushpy.security.redact import add_secret

    try:
        kept = os.environ[place.variable] if place.held else _stored_keys().get(provider)
        key = kept or read_secret(provider)
    except KeyringUnusable as error:
        return msgspec.structs.replace(place, problem=error.message)
    if not key:
        return msgspec.structs.replace(place, problem="The keyring no longer contains the stored key.")
    add_secret(key)
    return msgspec.structs.replace(place, key=key)


def locate_key(provider: str, settings: Settings) -> KeyOrigin:
    """The location of the key of `provider`. Fast; never opens the keyring."""
    chosen = settings.providers.get(provider) or ProviderSettings()
    variables = vendors.key_variables(provider, chosen.api_key_env)
    held = next((name for name in variables if os.environ.get(name)), "")
    if held:
        return KeyOrigin(held, held=True)
    guessed = () if provider in settings.providers else vendors.guessed_variables(provider)
    if any(os.environ.get(name) for name in guessed):
        return KeyOrigin()  # litellm reads it, and the environment takes precedence
    kept = _stored_keys().get(provider)
    return KeyOrigin(next(iter(variables), ""), stored=kept is not None, in_file=bool(kept))


# --- storing -------------------------------------------------------------------------------------------


def stored_names() -> frozenset[str]:
    """The providers whose key was stored."""
    return frozenset(_stored_keys())


def key_file_damaged() -> bool:
    file = Paths().key_file
    return file.exists() and read_stored(file, dict[str, str]) is None


def _stored_keys() -> dict[str, str]:
    """The stored keys, by provider; empty if the keyring has it."""
    return read_stored(Paths().key_file, dict[str, str]) or {}


def store_key(provider: str, key: str, settings: Settings, *, in_file: bool = False) -> None:
    """Store a key in the keyring, or in a file. Raises UsageError for an invalid key, KeyringUnusable with
    a hint."""
    from crushpy.security.redact import add_secret

    key = checked_key(key)
    add_secret(key)
    if not in_file:
        with _add_hint(provider, settings):
            write_secret(provider, key)
    elif _stored_keys().get(provider) == "":
        with suppress(KeyringUnusable):  # the other one is not used any more
            delete_secret(provider)
    _update(lambda keys: {**keys, provider: key if in_file else ""})


def remove_key(provider: str, settings: Settings) -> bool:
    """Delete a stored key, and stop looking for it. Returns whether there was one."""
    kept = _stored_keys().get(provider)
    if kept is not None:  # first, in case the keyring is no longer available
        _update(lambda keys: {name: key for name, key in keys.items() if name != provider})
    if kept:
        return True
    try:
        return delete_secret(provider)
    except KeyringUnusable as error:
        if kept is None:  # it is not looked for there
            return False
        hint = f"The key is no longer used. {variable_hint(provider, settings)}"
        raise KeyringUnusable(error.message, hint) from None


def require_key_storage(provider: str, settings: Settings) -> str:
    """The name of the keyring that would be used. Raises KeyringUnusable with a hint."""
    with _add_hint(provider, settings):
        return _run_with_timeout(lambda: _title(_backend()))


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
    if keyless := vendors.vendor_of(wanted).keyless:
        raise UsageError(f"There is no key to store for {wanted}.", keyless)
    usual = [*vendors.BY_NAME, "azure"]
    known = {*usual, *settings.providers, *(name.partition("/")[0] for name in catalog.chat_names())}
    known = {name for name in known if not vendors.vendor_of(name).keyless}
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
        f"{meant}Known: {', '.join(usual)}, those of your settings ([providers.<name>]), and litellm's.",
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


@contextmanager
def _add_hint(provider: str, settings: Settings) -> Generator[None]:
    """Add a hint to an error of the keyring: how to set or store the key without it."""

    try:
        yield
    except KeyringUnusable as error:
        to_file = f"Or store it in {Paths().key_file}, not encrypted: crushpy connect {provider} --file"
        raise KeyringUnusable(error.message, f"{variable_hint(provider, settings)} {to_file}") from None


def _update(change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    file = Paths().key_file
    if key_file_damaged():
        raise CrushpyError(f"{file} cannot be read.", "Correct it, or remove it: it may contain other keys.")
    try:
        update_stored(file, dict[str, str], change, seconds=10)
    except (OSError, TimeoutError) as error:
        raise CrushpyError(f"{file} could not be written: {error}.") from error


# --- the system's keyring: loaded on first use, called with a timeout, refused if it stores plain text
#
# A keyring may ask for a password, wait for a bus that never answers, or write plain files: none of that may
# block crushpy or expose a key.


SERVICE = "crushpy"
KEYRING_TIMEOUT_S = 10.0
"""An unlocked keyring answers in milliseconds; a locked one may show a dialog first."""

Answer = TypeVar("Answer")


class KeyringUnusable(CrushpyError):
    """There is no keyring, it stores plain text, it is locked, or it does not answer."""


def read_secret(name: str) -> str | None:
    """The secret stored under `name`, or None. Raises KeyringUnusable, as all of these functions do."""
    return _run_with_timeout(lambda: _backend().get_password(SERVICE, name))


def write_secret(name: str, secret: str) -> None:
    """Store `secret` and verify that it can be read."""

    _run_with_timeout(lambda: _backend().set_password(SERVICE, name, secret))
    if read_secret(name) != secret:
        raise KeyringUnusable("The keyring accepted the key but does not return it.")


def delete_secret(name: str) -> bool:
    """Whether there was something to delete."""

    if read_secret(name) is None:
        return False
    _run_with_timeout(lambda: _backend().delete_password(SERVICE, name))
    return True


# --- backends ------------------------------------------------------------------------------------------


def _backend() -> Any:
    """A `keyring.backend.KeyringBackend`."""
    logger = logging.getLogger("keyring")
    logger.handlers, logger.propagate = [logging.NullHandler()], False  # it would write to the terminal
    found: Any = importlib.import_module("keyring").get_keyring()
    # A chain would fall back to a plain file if its first link cannot store: only secure links are used.
    links = list(found.backends) if _comes_from(found, "keyring.backends.chainer") else [found]
    usable = [
        link for link in links if not _comes_from(link, "keyring.backends.fail", "keyring.backends.null")
    ]
    for link in usable:
        plain = any("plaintext" in kind.__name__.lower() for kind in type(link).__mro__)
        if not plain and not _comes_from(link, "keyrings.alt"):
            return link
    if not usable:
        raise KeyringUnusable("There is no usable keyring on this system.")
    raise KeyringUnusable(
        f"The only keyring on this system ({_title(links[0])}) writes keys to plain files: none was stored."
    )


def _comes_from(backend: object, *modules: str) -> bool:
    names = [kind.__module__ for kind in type(backend).__mro__]
    return any(name == module or name.startswith(f"{module}.") for name in names for module in modules)


def _title(backend: object) -> str:
    return str(getattr(backend, "name", "") or type(backend).__name__)


# --- timeout -------------------------------------------------------------------------------------------


def _run_with_timeout(work: Callable[[], Answer]) -> Answer:
    """Run `work` in a thread, which is abandoned if the keyring hangs. Raises KeyringUnusable."""
    outcome = Future[Answer]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # backends raise anything; it is reported below
            outcome.set_exception(error)

    threading.Thread(target=run, name="keyring", daemon=True).start()
    try:
        error = outcome.exception(KEYRING_TIMEOUT_S)
    except TimeoutError:
        late = f"The keyring did not answer within {KEYRING_TIMEOUT_S:g} s: it may be locked."
        raise KeyringUnusable(late) from None
    if error is None or isinstance(error, KeyringUnusable):
        return outcome.result()
    said = " ".join(str(error).split())[:200]
    raise KeyringUnusable(f"The keyring cannot be used: {said or type(error).__name__}.") from None
