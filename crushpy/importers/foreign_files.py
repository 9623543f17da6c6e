"""Reading other programs' files: JSON lines, trees of JSON lines, and SQLite databases."""

import os
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from crushpy.core.messages import Json
from crushpy.importers.foreign import Found, SkippedSession, Unmapped, UnreadableSource, parsed
from crushpy.util.read_json import as_object

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is counted as damaged."""
Row = sqlite3.Row
_COPY = "copy.db"
_COPY_ATTEMPTS = 5


def json_lines(file: Path, unmapped: Unmapped) -> Iterator[tuple[int, Json]]:
    """Every line that holds a JSON object, with its number, read one at a time: a file may be larger than
    memory. Other lines, such as a truncated last one, are counted."""
    try:
        with file.open("rb") as stream:
            at = 0
            while data := stream.readline(MAX_LINE_BYTES):
                at += 1
                if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
                    while (data := stream.readline(MAX_LINE_BYTES)) and not data.endswith(b"\n"):
                        pass
                    unmapped.add_damaged(f"line {at}")
                    continue
                if not data.strip():
                    continue
                value = decoded_object(data.removeprefix(b"\xef\xbb\xbf"), f"line {at}", unmapped)
                if value is not None:
                    yield at, value
    except OSError as error:
        raise UnreadableSource(f"cannot read {file}: {error.strerror}", "Check its permissions.") from error


def decoded_object(data: bytes | str | None, place: str, unmapped: Unmapped) -> Json | None:
    """A JSON object; None, and counted, if it is anything else."""
    value = parsed(data or "")
    if isinstance(value, dict):
        return as_object(value)
    unmapped.add_damaged(place)
    return None


def json_files(files: Iterable[Path], unmapped: Unmapped) -> Iterator[tuple[str, Json]]:
    """The objects in JSON files, with the files' names; what cannot be read is counted."""
    for file in sorted(files):
        data = b""
        with suppress(OSError):
            data = file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_LINE_BYTES else b""
        value = decoded_object(data, file.name, unmapped)
        if value is not None:
            yield file.stem, value


def jsonl_sessions(path: Path, look: Callable[[Path], Found | None]) -> Iterator[Found]:
    """What `look` returns for the file `path`, or for each `.jsonl` file below it, in order. Links to folders
    or out of `path` are not followed; pipes and devices are ignored."""
    for file in [path] if os.path.isfile(path) else _jsonl_files(path):  # noqa: PTH113  # it never raises
        yield from readable_sessions(file, path, lambda file: filter(None, [look(file)]))


def leads_inside(file: Path, folder: Path) -> bool:
    """Whether `file` is `folder` or, all links followed, inside it."""
    return file == folder or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def readable_sessions(file: Path, folder: Path, look: Callable[[Path], Iterable[Found]]) -> Iterator[Found]:
    """The sessions in one file of a folder. An unreadable file does not affect the others."""
    if not leads_inside(file, folder):
        yield SkippedSession(file, "it is a link that leads out of the folder")
        return
    try:
        yield from look(file)
    except UnreadableSource as error:
        yield SkippedSession(file, error.message)


def _jsonl_files(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        folders.sort()
        found = (Path(folder) / name for name in sorted(files) if name.endswith(".jsonl"))
        yield from filter(os.path.isfile, found)


class _TreeLine(NamedTuple):
    number: int
    parent: str
    before: str
    """The preceding line, the best guess if its parent is missing from the file."""
    groups: tuple[str, ...]


class LineTree:
    """Which lines of a file lead to its last message, if entries name their parents. Holds little of each
    line, not the lines."""

    def __init__(self) -> None:
        self._lines: dict[str, _TreeLine] = {}
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        """The lines of each group."""
        self._last = ""
        """The last message."""
        self._previous = ""

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    @property
    def lines(self) -> set[int]:
        """All lines, without those that repeat an id."""
        return {line.number for line in self._lines.values()}

    def add(
        self, number: int, name: str, parent: str, *, is_message: bool, follows: bool, groups: Sequence[str]
    ) -> None:
        """Adds the next line. `follows`: without a parent, it follows the line before it. Lines that share a
        group belong together whatever parents they name."""
        if name in self._lines:
            return
        before = self._previous if parent or follows else ""
        self._lines[name] = _TreeLine(number, parent, before, tuple(groups))
        for group in groups:
            self._members[group].append(name)
        self._previous = name
        self._last = name if is_message else self._last

    def branch(self) -> set[int]:
        """The numbers of the lines that lead to the last message; all lines if none names a parent."""
        if not any(line.parent for line in self._lines.values()):
            return self.lines
        found: set[str] = set()
        name = self._last
        while name and name not in found:  # a cycle ends the walk
            found.add(name)
            line = self._lines[name]
            name = line.parent if line.parent in self._lines else line.before
        for _ in range(2):  # the other lines of a reply, then the results of the calls in them
            groups = {group for name in found for group in self._lines[name].groups}
            found.update(name for group in groups for name in self._members[group])
        return {self._lines[name].number for name in found}


class ForeignDatabase(NamedTuple):
    connection: sqlite3.Connection
    file: Path

    def columns(self, table: str) -> set[str]:
        """Empty if the table does not exist."""
        return {row["name"] for row in self.connection.execute(f"PRAGMA table_info({table})")}

    def require(self, program: str, **tables: Sequence[str]) -> None:
        """Raises if a table lacks a column: the file is another version's, or another program's."""
        for table, wanted in tables.items():
            missing = set(wanted) - self.columns(table)
            if missing:
                raise UnreadableSource(
                    f"{self.file} is not a known {program} database: its table {table} has no "
                    f"{', '.join(sorted(missing))}",
                    "Another version may have written it.",
                )

    def rows(
        self, statement: str, values: Sequence[str] = (), unmapped: Unmapped | None = None
    ) -> Iterator[Row]:
        """The rows; with `unmapped`, a damaged file ends them and is counted."""
        try:
            yield from self.connection.execute(statement, values)
        except sqlite3.DatabaseError as error:
            if unmapped is None:
                raise
            unmapped.add_damaged(str(error))


@contextmanager
def reading(file: Path) -> Generator[ForeignDatabase]:
    """Opens a database without changing anything beside it: no lock, no `-wal`, no `-shm`."""
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
        if _log_of(file).exists():
            copy = _private_copy(file, *_version(file))  # deleted once nothing refers to it
            uri = f"{Path(copy.name, _COPY).as_uri()}?mode=ro"
        # One thread may continue what another began to read.
        with closing(sqlite3.connect(uri, uri=True, timeout=5.0, check_same_thread=False)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield ForeignDatabase(connection, file)
    except (sqlite3.Error, OSError) as error:
        raise UnreadableSource(f"cannot read {file}: {error}", "Is it another program's file?") from error


def is_database(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(6) == b"SQLite"
    except OSError:
        return True  # whose reader says why


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _version(file: Path) -> tuple[int, ...]:
    """Changes with every write to a database or its log."""
    return tuple(
        number for path in (file, _log_of(file)) for number in (path.stat().st_size, path.stat().st_mtime_ns)
    )


@lru_cache(maxsize=1)  # one database has many sessions
def _private_copy(file: Path, *version: int) -> "tempfile.TemporaryDirectory[str]":
    """A copy of a database and its log: even reading in place would change the `-shm` file beside them."""
    folder = tempfile.TemporaryDirectory(prefix="crushpy-import-")
    for _ in range(_COPY_ATTEMPTS):
        shutil.copyfile(file, Path(folder.name, _COPY))
        shutil.copyfile(_log_of(file), _log_of(Path(folder.name, _COPY)))
        before, version = version, _version(file)
        if version == before:  # otherwise another process wrote meanwhile: the copies may not fit together
            return folder
    raise OSError(f"it is being written to; close the program that uses {file.name}")
