"""Another program's SQLite file, opened so that nothing beside it changes: no lock, no `-wal`, no `-shm`."""

import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from crushpy.importers.foreign import DAMAGED, Unmapped, UnreadableSource

Row = sqlite3.Row
_SIDES = ("-wal", "-shm")


class ForeignDatabase:
    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self.file = file

    def columns(self, table: str) -> set[str]:
        """Of a table of ours to know; empty where there is none."""
        return {row["name"] for row in self._connection.execute(f"PRAGMA table_info({table})")}

    def require(self, program: str, **tables: Sequence[str]) -> None:
        """Raises where a table lacks what is read of it: another version's file, or another program's."""
        for table, wanted in tables.items():
            missing = set(wanted) - self.columns(table)
            if missing:
                raise UnreadableSource(
                    f"{self.file} is no database of {program} that is known: its table {table} has no "
                    f"{', '.join(sorted(missing))}",
                    "Another version may have written it.",
                )

    def rows(
        self, statement: str, values: Sequence[str] = (), unmapped: Unmapped | None = None
    ) -> Iterator[Row]:
        """What the statement finds; where the file is damaged, what can be read before that."""
        try:
            yield from self._connection.execute(statement, values)
        except sqlite3.DatabaseError:
            if unmapped is None:
                raise
            unmapped[DAMAGED] += 1


@contextmanager
def reading(file: Path) -> Generator[ForeignDatabase]:
    """The database in `file`. Raises `UnreadableSource` where it is none."""
    try:
        with _usable(file) as address, closing(_connected(address)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = _text
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield ForeignDatabase(connection, file)
    except (sqlite3.Error, OSError) as error:
        raise UnreadableSource(f"cannot read {file}: {error}", "Is it another program's file?") from error


def _connected(address: str) -> sqlite3.Connection:
    # What one thread begins to read, another may go on with.
    return sqlite3.connect(address, uri=True, timeout=5.0, check_same_thread=False)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@contextmanager
def _usable(file: Path) -> Generator[str]:
    """An address that SQLite opens without making a file beside `file`."""
    wal, shm = (file.with_name(file.name + side) for side in _SIDES)
    with suppress(OSError):
        if wal.stat().st_size == 0 and not shm.exists():
            wal = file.with_name(f"{file.name}-none")
    if not wal.exists():
        yield f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    elif shm.exists():  # somebody works with it: read along
        yield f"{file.absolute().as_uri()}?mode=ro"
    else:  # what was written last is in the log only, and reading it here would make the other file
        with tempfile.TemporaryDirectory(prefix="crushpy-import-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(file, copy)
            shutil.copyfile(wal, copy.with_name("copy.db-wal"))
            yield f"{copy.as_uri()}?mode=ro"
