"""Which versions of the schema are opened, and what is said about the others.

Version 19 was the first that `tables.py` defines.
"""

from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.ddl import VERSION
from crushpy.storage.location import Location
from crushpy.storage.records import StorageError

OLDEST_VERSION = 19


def require_supported(version: int, location: Location) -> None:
    """Raises unless the version can be used, or upgraded. Nothing was changed so far."""
    place = location.place
    if version > VERSION:
        raise StorageError(
            f"the database {place} has version {version}, but this crushpy supports versions up to {VERSION}",
            "It was written by a newer crushpy: update this one, or set CRUSHPY_HOME to another folder. "
            "Nothing was changed.",
        )
    if 0 < version < OLDEST_VERSION:
        raise StorageError(
            f"the database {place} has version {version}, which this crushpy does not support",
            f"It opens version {OLDEST_VERSION} and later: set CRUSHPY_HOME to another folder. "
            "Nothing was changed.",
        )


def refuse_unfinished(database: Database, location: Location) -> None:
    """Raises if `storage copy` into this database was interrupted."""
    source = database.execute(sql.FIND_MAINTENANCE, name="copy").scalar()
    if source is not None and not location.allows_unfinished:
        raise StorageError(
            f"{location.place} is an unfinished copy of {source}: conversations may be missing in it",
            f"Finish it: crushpy storage copy {source} {location.place}",
        )
