"""Which database the setting `database_url` names, and how it may be opened."""

from collections.abc import Callable
from pathlib import Path

from crushpy.core.errors import SettingsError
from crushpy.storage.postgres_address import ServerAddress, is_server

_SCHEMES = ("sqlite:///", "sqlite+pysqlite:///")
_HINT = (
    "Write it as sqlite:////absolute/path/crushpy.db or postgresql://user@host/database, "
    "or remove it to use the default file."
)


class Location:
    """A database that is opened later, on the storage thread."""

    def __init__(self, default: Path, url: str) -> None:
        self.server = ServerAddress(url) if is_server(url) else None
        self.file = default if self.server else database_file(default, url)
        self.place = self.server.shown if self.server else str(self.file)
        """How errors and people name it; without passwords."""
        self.warnings: list[str] = []
        """Problems met while opening it, for the user."""
        self.notify: Callable[[str], None] = _ignore
        """Called on the storage thread with what the user should know while a job waits."""
        self.allows_unfinished = False
        """Whether a copy that was interrupted may be opened: only to continue it."""
        self.allows_version_18 = False
        """Whether a database of version 18 may be read: only to copy it."""
        self.is_version_18 = False
        """Known once it was opened."""
        self.replaces_damaged = True
        """Whether a file that cannot be read is renamed, and a new one created."""

    @property
    def exists(self) -> bool:
        """False if the first write would create it."""
        return self.server is not None or self.file.exists()


def database_file(default: Path, url: str) -> Path:
    """The file of a SQLite URL, or `default` if there is no URL. Relative ones are beside `default`."""
    if not url:
        return default
    scheme = url.partition(":")[0]  # all that may be shown: the rest can contain a password
    start = next((one for one in _SCHEMES if url.startswith(one)), None)
    if start is None:
        raise SettingsError(
            f"database_url: {scheme!r} is not supported; crushpy stores in SQLite or PostgreSQL", _HINT
        )
    name = url.removeprefix(start)
    if not name or name == ":memory:" or "?" in name:
        raise SettingsError(f"database_url: {url!r} must name a file, without options", _HINT)
    return default.parent / Path(name).expanduser()


def _ignore(_: str) -> None:
    pass
