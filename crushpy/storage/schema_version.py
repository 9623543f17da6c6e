"""Which versions of the schema are opened, and what is said about the others.

Version 19 was the first that `tables.py` defines. Version 18 can be copied into a new database; its tables
are the same under older names.
"""

from collections.abc import Iterable

from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.ddl import COLUMNS, DEFAULTS, VERSION
from crushpy.storage.location import Location
from crushpy.storage.records import StorageError

OLD_VERSION = 18
_OLD_NAMES = {"message_override": "cut", "timeline_note": "mark", "maintenance": "chore"}
_OLD_COLUMNS = {
    "boundary": {"truncated_chars": "cut_chars", "template": "template_name", "facts": "coverage"},
    "message_override": {"kind": "replace(kind, 'cut', 'shorten')"},
}
"""Tables, columns and values that version 18 names differently."""


def require_supported(version: int, location: Location) -> None:
    """Raises unless the version can be used, or upgraded. Nothing was changed so far."""
    place = location.place
    location.is_version_18 = version == OLD_VERSION
    if version > VERSION:
        raise StorageError(
            f"the database {place} has version {version}, but this crushpy supports versions up to {VERSION}",
            "It was written by a newer crushpy: update this one, or set CRUSHPY_HOME to another folder. "
            "Nothing was changed.",
        )
    if version == OLD_VERSION and not location.allows_version_18:
        raise StorageError(
            f"the database {place} has version {OLD_VERSION}, which this crushpy only copies",
            f"Copy it with `crushpy storage copy {place} NEW`, then set database_url to NEW, "
            "or move it to the old name. Nothing was changed.",
        )
    if 0 < version < OLD_VERSION:
        raise StorageError(
            f"the database {place} has version {version}, which this crushpy does not support",
            f"Set CRUSHPY_HOME to another folder, or upgrade it first with a crushpy that writes version "
            f"{OLD_VERSION}. Nothing was changed.",
        )


def old_table_views(schema: str, columns: Iterable[tuple[str, str]]) -> list[str]:
    """Statements that let a connection read a database of version 18 under the names of today.

    `columns` are those of its tables; columns that were added since have their defaults, tables are empty.
    """
    present: dict[str, set[str]] = {}
    for table, column in columns:
        present.setdefault(table, set()).add(column)
    views: list[str] = []
    for table, names in COLUMNS.items():
        old = _OLD_NAMES.get(table, table)
        known = present.get(old, ())
        values = dict.fromkeys(names, "NULL")
        if known:
            values |= DEFAULTS[table] | {name: name for name in names if name in known}
            values |= _OLD_COLUMNS.get(table, {})
        if old != table or any(name != value for name, value in values.items()):
            listed = ", ".join(f"{value} AS {name}" for name, value in values.items())
            source = f"FROM {schema}{old}" if known else "WHERE 1 = 0"
            views.append(f"CREATE TEMP VIEW {table} AS SELECT {listed} {source}")
    return views


def refuse_unfinished(database: Database, location: Location) -> None:
    """Raises if `storage copy` into this database was interrupted."""
    source = database.execute(sql.FIND_MAINTENANCE, name="copy").scalar()
    if source is not None and not location.allows_unfinished:
        raise StorageError(
            f"{location.place} is an unfinished copy of {source}: conversations may be missing in it",
            f"Finish it: crushpy storage copy {source} {location.place}",
        )
