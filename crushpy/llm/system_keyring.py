"""The system's keyring: loaded when it is used, asked in bounded time, refused if it stores plain text.

A keyring may ask its user for a password, wait for a bus that never answers, or write plain files: none of
that may hold crushpy up or leave a key in the open.
"""

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from crushpy.core.errors import CrushpyError

SERVICE = "crushpy"
KEYRING_TIMEOUT_S = 10.0
"""Seconds. A keyring that is unlocked answers in milliseconds; one that is not may show a dialog first."""

Answer = TypeVar("Answer")


class KeyringUnusable(CrushpyError):
    """There is no keyring, it stores plain text, it is locked, or it does not answer."""


class Backend(Protocol):
    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


def read_secret(name: str) -> str | None:
    """What is stored under `name`; None if nothing is. Raises KeyringUnusable, as all of these do."""
    return _in_time(lambda: _backend().get_password(SERVICE, name))


def write_secret(name: str, secret: str) -> None:
    """Stores `secret`, and looks whether it is there."""

    def write() -> bool:
        backend = _backend()
        backend.set_password(SERVICE, name, secret)
        return backend.get_password(SERVICE, name) == secret

    if not _in_time(write):
        raise KeyringUnusable("The keyring took the key but does not give it back.")


def delete_secret(name: str) -> bool:
    """Whether there was something to delete."""

    def delete() -> bool:
        backend = _backend()
        if backend.get_password(SERVICE, name) is None:
            return False
        backend.delete_password(SERVICE, name)
        return True

    return _in_time(delete)


def require_keyring() -> str:
    """The name of the keyring that would be used."""
    return _in_time(lambda: _title(_backend()))


# --- which one -----------------------------------------------------------------------------------------


def _backend() -> Backend:
    logger = logging.getLogger("keyring")
    logger.handlers, logger.propagate = [logging.NullHandler()], False  # it would write into the screen
    found: Any = importlib.import_module("keyring").get_keyring()
    # A chain would go on to a plain file where its first link cannot store: only links that hide are asked.
    links = list(found.backends) if _comes_from(found, "keyring.backends.chainer") else [found]
    hiding = [link for link in links if not _hides_nothing(link)]
    if hiding:
        return cast(Backend, hiding[0])
    if all(_comes_from(link, "keyring.backends.fail", "keyring.backends.null") for link in links):
        raise KeyringUnusable("There is no usable keyring on this system.")
    raise KeyringUnusable(
        f"The only keyring on this system ({_title(links[0])}) writes keys to plain files: none was stored."
    )


def _hides_nothing(backend: object) -> bool:
    if _comes_from(backend, "keyring.backends.fail", "keyring.backends.null", "keyrings.alt"):
        return True
    return any("plaintext" in kind.__name__.lower() for kind in type(backend).__mro__)


def _comes_from(backend: object, *modules: str) -> bool:
    names = [kind.__module__ for kind in type(backend).__mro__]
    return any(name == module or name.startswith(f"{module}.") for name in names for module in modules)


def _title(backend: object) -> str:
    return str(getattr(backend, "name", "") or type(backend).__name__)


# --- in bounded time -----------------------------------------------------------------------------------


def _in_time(work: Callable[[], Answer]) -> Answer:
    """What `work` returns, or KeyringUnusable; a keyring that hangs is left behind in a thread of its own."""
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # a library of many backends: whatever goes wrong is said below
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
