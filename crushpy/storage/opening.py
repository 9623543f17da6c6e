"""Opens the database of a location. The library of a database is imported only if it is used."""

from crushpy.storage.database import Database
from crushpy.storage.location import Location, ServerAddress
from crushpy.storage.records import ServerReport, StorageError


def open_database(location: Location) -> Database:
    if location.server is not None:
        _require_psycopg(location.place)
        from crushpy.storage.postgres_database import open_server

        return open_server(location, location.server)
    from crushpy.storage.sqlite_database import open_file

    return open_file(location)


def _require_psycopg(place: str) -> None:
    try:
        import psycopg as _  # noqa: F401
    except ImportError as error:
        raise StorageError(
            f"{place} needs psycopg, which is not installed: {error}",
            "Install it with `pip install 'crushpy[postgres]'`.",
        ) from error


def examine_server(url: str) -> ServerReport:
    """Asks a server for its state; nothing is created there. `StorageError` if it cannot be asked."""
    _require_psycopg(ServerAddress(url).shown)
    from crushpy.storage.postgres_server import examine

    return examine(ServerAddress(url))
