"""Which database the setting `database_url` names."""

from pathlib import Path

from crushpy.core.errors import SettingsError
from crushpy.storage.backend import Backend
from crushpy.storage.postgres.address import ServerAddress, is_server
from crushpy.storage.server_report import ServerReport

_SCHEMES = ("sqlite:///", "sqlite+pysqlite:///")
_HINT = (
    "Write it as sqlite:////absolute/path/crushpy.db or postgresql://user@host/database, "
    "or remove it to use the default file."
)


def backend_at(default: Path, url: str) -> Backend:
    """The database of a URL, not open yet; the file `default` where there is none."""
    if is_server(url):
        from crushpy.storage.postgres.backend import PostgresBackend

        return PostgresBackend(url)
    from crushpy.storage.sqlite.backend import SqliteBackend

    return SqliteBackend(database_file(default, url))


def database_file(default: Path, url: str) -> Path:
    """The file of a SQLite URL, or `default` where there is no URL. Relative ones lie beside `default`."""
    if not url:
        return default
    scheme = url.partition(":")[0]  # all that may be shown: the rest can hold a password
    start = next((one for one in _SCHEMES if url.startswith(one)), None)
    if start is None:
        raise SettingsError(
            f"database_url: {scheme!r} is not supported; crushpy stores in SQLite or PostgreSQL", _HINT
        )
    name = url.removeprefix(start)
    if not name or name == ":memory:" or "?" in name:
        raise SettingsError(f"database_url: {url!r} must name a file, without options", _HINT)
    return default.parent / Path(name).expanduser()


def examine_server(url: str) -> ServerReport:
    """Asks a server how it is; nothing is made there. `StorageError` where it cannot be asked."""
    from crushpy.storage.postgres.server import examine

    return examine(ServerAddress(url))
