"""The system's keyring: loaded on first use, called with a timeout, refused if it stores plain text.

A keyring may ask for a password, wait for a bus that never answers, or write plain files: none of that may
block crushpy or expose a key.
"""

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from crushpy.core.errors import CrushpyError

SERVICE = "crushpy"
KEYRING_TIMEOUT_S = 10.0
"""An unlocked keyring answers in milliseconds; a locked one may show a dialog first."""

Answer = TypeVar("Answer")


class KeyringUnusable(CrushpyError):
    """There is no keyring, it stores plain text, it is locked, or it does not answer."""


class Backend(Protocol):
    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


def read_secret(name: str) -> str | None:
    """The secret stored under `name`, or None. Raises KeyringUnusable, as all of these functions do."""
    return _run_with_timeout(lambda: _backend().get_password(SERVICE, name))


def write_secret(name: str, secret: str) -> None:
    """Store `secret` and verify that it can be read."""

    def write() -> bool:
        backend = _backend()
        backend.set_password(SERVICE, name, secret)
        return backend.get_password(SERVICE, name) == secret

    if not _run_with_timeout(write):
        raise KeyringUnusable("The keyring accepted the key but does not return it.")


def delete_secret(name: str) -> bool:
    """Whether there was something to delete."""

    def delete() -> bool:
        backend = _backend()
        if backend.get_password(SERVICE, name) is None:
            return False
        backend.delete_password(SERVICE, name)
        return True

    return _run_with_timeout(delete)


def require_keyring() -> str:
    """The name of the keyring that would be used."""
    return _run_with_timeout(lambda: _title(_backend()))


# --- backends ------------------------------------------------------------------------------------------


def _backend() -> Backend:
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
            return cast(Backend, link)
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
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # backends raise anything; it is reported below
            failures.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(KEYRING_TIMEOUT_S)
    if answers:
        return answers[0]
    if not failures:
        raise KeyringUnusable(f"The keyring did not answer within {KEYRING_TIMEOUT_S:g} s: it may be locked.")
    error = failures[0]
    if isinstance(error, KeyringUnusable):
        raise error
    said = " ".join(str(error).split())[:200]
    raise KeyringUnusable(f"The keyring cannot be used: {said or type(error).__name__}.") from None
