"""Which database the setting `database_url` names, and how it may be opened."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from crushpy.core.errors import SettingsError

FileState = tuple[int, int, int, int, bytes, int]
_LOG_HEADER_BYTES = 32
"""Changes only when SQLite starts the log again, after its content was moved into the file."""
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
        self._log = self.file.with_name(f"{self.file.name}-wal")
        self.warnings: list[str] = []
        """Problems met while opening it, for the user."""
        self.notify: Callable[[str], None] = lambda _: None
        """Called, on the storage thread, with what the user should know while a job waits."""
        self.allows_unfinished = False
        """Whether a copy that was interrupted may be opened: only to continue it."""
        self.replaces_damaged = True
        """Whether a file that cannot be read is renamed, and a new one created."""
        self.known_state: FileState | None = None
        """The state of an open file, as far as its changes are known to be a database's own."""

    def listen(self, listener: Callable[[str], None]) -> None:
        self.notify = listener

    @property
    def exists(self) -> bool:
        """False if the first write would create it."""
        return self.server is not None or self.file.exists()

    def is_unchanged(self) -> bool:
        """Whether the open file is as it was when it was last verified. Cheap, on any thread."""
        return self.known_state is None or self.known_state == self.read_state()

    def read_state(self) -> "FileState | None":
        """Identity, size and time of the file, header and identity of its log; None if it does not exist."""
        try:
            found = self.file.stat()
        except OSError:
            return None
        try:
            # SQLite has no locks on this file, which closing it would release.
            with os.fdopen(os.open(self._log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as log:
                header, inode = log.read(_LOG_HEADER_BYTES), os.fstat(log.fileno()).st_ino
        except OSError:
            header, inode = b"", 0
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, header, inode)


def database_file(default: Path, url: str) -> Path:
    """The file of a SQLite URL, or `default` if there is no URL. Relative ones are beside `default`."""
    if not url:
        return default
    scheme = url.partition(":")[0]  # all that may be shown: the rest can contain a password
    start = next((scheme for scheme in _SCHEMES if url.startswith(scheme)), None)
    if start is None:
        raise SettingsError(
            f"database_url: {scheme!r} is not supported; crushpy stores in SQLite or PostgreSQL", _HINT
        )
    name = url.removeprefix(start)
    if not name or name == ":memory:" or "?" in name:
        raise SettingsError(f"database_url: {url!r} must name a file, without options", _HINT)
    return default.parent / Path(name).expanduser()


SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_SECRET = frozenset({"password", "sslpassword", "passfile", "sslkey"})


class ServerAddress:
    def __init__(self, url: str) -> None:
        parts = _parts(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        self.url = _joined(parts.netloc, parts.path, parts.query)
        """As libpq takes it."""
        self._secrets = [value for name, value in options if name in _SECRET and value]
        user, separator, host = parts.netloc.rpartition("@")
        name, colon, password = user.partition(":")
        if colon:
            self._secrets += [secret for secret in (password, unquote(password)) if secret]
        shown = urlencode([pair for pair in options if pair[0] not in _SECRET])
        self.shown = _joined(f"{name}{separator}{host}", parts.path, shown)
        """Without passwords."""

    def without_secrets(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return re.sub(r"(password\s*=\s*)('[^']*'|\S+)", r"\1***", text)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # the invalid part may be the password: it is not shown
        raise SettingsError(
            f"database_url is not an address: {str(error).partition(':')[0]}",
            "Write it as postgresql://user@host:port/database, with special characters as %XX.",
        ) from error


def _joined(place: str, path: str, options: str) -> str:
    """With two slashes even without a host: the server's socket on this machine."""
    return f"postgresql://{place}{path}" + (f"?{options}" if options else "")


def is_server(url: str) -> bool:
    """Whether a database_url names a server of PostgreSQL."""
    return url.partition("://")[0].lower() in SCHEMES
