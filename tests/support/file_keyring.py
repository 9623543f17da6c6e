"""Keyrings for tests, chosen as people choose theirs: `PYTHON_KEYRING_BACKEND=file_keyring.FileKeyring`."""

import json
import os
import threading
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FileKeyring(KeyringBackend):
    """Keeps what it is given in the file that `KEYRING_PROPERTY_FILE` or `TEST_KEYRING` names."""

    priority = 5  # pyright: ignore[reportAssignmentType]
    file = ""

    def _path(self) -> Path:
        return Path(self.file or os.environ["TEST_KEYRING"])

    def _entries(self) -> dict[str, str]:
        return json.loads(self._path().read_text()) if self._path().exists() else {}

    def _write(self, entries: dict[str, str]) -> None:
        self._path().write_text(json.dumps(entries))

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._entries(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if f"{service}/{username}" not in entries:
            raise PasswordDeleteError(username)
        self._write({name: value for name, value in entries.items() if name != f"{service}/{username}"})


class PlaintextVault(FileKeyring):
    """As its name says."""


class LockedKeyring(FileKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the collection is locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked("the collection is locked")


class SilentKeyring(FileKeyring):
    """Waits for a bus that never answers."""

    def get_password(self, service: str, username: str) -> str | None:
        threading.Event().wait()
        return None

    def set_password(self, service: str, username: str, password: str) -> None:
        threading.Event().wait()


class ForgetfulKeyring(FileKeyring):
    def set_password(self, service: str, username: str, password: str) -> None:
        pass
