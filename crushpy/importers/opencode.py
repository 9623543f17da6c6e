"""opencode: a SQLite database; in older versions a folder of JSON files for sessions, messages and parts."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.messages import Json
from crushpy.importers.foreign import (
    DAMAGED,
    ForeignSession,
    Heading,
    Item,
    NoSession,
    Unmapped,
    UnreadableSource,
)
from crushpy.importers.foreign_database import Row, reading
from crushpy.importers.json_lines import MAX_LINE
from crushpy.importers.opencode_messages import StoredMessage, opencode_pieces
from crushpy.importers.values import mapping, newer_version, parsed, seconds_of, text_of

KNOWN = 1
_UNNAMED = re.compile(r"(?:New|Child) session - ")
_NAME = re.compile(r"[\w.-]{1,200}")


class OpenCode:
    name = "opencode"
    title = "opencode"

    def places(self, cwd: Path) -> Sequence[Path]:
        shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        data = Path(os.environ.get("OPENCODE_DATA_DIR") or f"{shared}/opencode").expanduser()
        chosen = os.environ.get("OPENCODE_DB", "")
        return [data / chosen, data] if chosen and chosen != ":memory:" else [data]

    def sessions(self, path: Path) -> Iterator[ForeignSession | NoSession]:
        databases = [path] if path.is_file() and path.suffix != ".json" else sorted(path.glob("opencode*.db"))
        for file in databases:
            try:
                yield from _in_database(file)
            except UnreadableSource as error:
                yield NoSession(file, error.message)
        for storage in (path, path / "storage"):
            if (storage / "session").is_dir():
                # A newer opencode copied these into its database and left them where they were.
                for head in sorted((storage / "session").glob("*/*.json")):
                    yield _in_files(storage, head)
        if path.is_file() and path.suffix == ".json" and len(path.parents) > 2:
            yield _in_files(path.absolute().parents[2], path)


# --- the database ----------------------------------------------------------------------------------------


def _in_database(file: Path) -> Iterator[ForeignSession | NoSession]:
    with reading(file) as database:
        database.require(
            "opencode",
            session=("id", "parent_id", "directory", "title", "version", "time_created"),
            message=("id", "session_id", "time_created", "data"),
            part=("id", "message_id", "session_id", "data"),
        )
        wanted = "SELECT id, parent_id, directory, title, version, time_created FROM session"
        rows = list(database.rows(f"{wanted} ORDER BY time_created, id"))
    for row in rows:
        if row["parent_id"]:
            yield NoSession(file)
            continue
        yield ForeignSession(
            id=str(row["id"]),
            file=file,
            cwd=str(row["directory"] or ""),
            read=lambda unmapped, row=row: _read_rows(file, row, unmapped),
            created_at=seconds_of(row["time_created"]),
            note=newer_version("opencode", row["version"], KNOWN),
        )


def _read_rows(file: Path, session: Row, unmapped: Unmapped) -> Iterator[Item]:
    yield from _heading(session["title"])
    with reading(file) as database:

        def stored() -> Iterator[StoredMessage]:
            statement = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
            for row in list(database.rows(statement, (session["id"],), unmapped)):
                info = parsed(row["data"] or "")
                if not isinstance(info, dict):
                    unmapped[DAMAGED] += 1
                    continue
                parts = database.rows(
                    "SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (row["id"],), unmapped
                )
                yield str(row["id"]), mapping(info), list(_parts(parts, unmapped))

        yield from opencode_pieces(stored(), unmapped)


def _parts(rows: Iterator[Row], unmapped: Unmapped) -> Iterator[tuple[str, Json]]:
    for row in rows:
        part = parsed(row["data"] or "")
        if isinstance(part, dict):
            yield str(row["id"]), mapping(part)
        else:
            unmapped[DAMAGED] += 1


def _heading(title: object) -> Iterator[Item]:
    name = text_of(title)
    if name and not _UNNAMED.match(name):
        yield Heading(name)


# --- the files -------------------------------------------------------------------------------------------


def _in_files(storage: Path, head: Path) -> ForeignSession | NoSession:
    info = _json(head, Unmapped())
    own = head.stem
    if info is None or not _NAME.fullmatch(own):
        return NoSession(head, "it cannot be read")
    if info.get("parentID"):
        return NoSession(head)
    return ForeignSession(
        id=own,
        file=head,
        cwd=text_of(info.get("directory")),
        read=lambda unmapped: _read_files(storage, own, info, unmapped),
        created_at=seconds_of(mapping(info.get("time")).get("created")),
        note=newer_version("opencode", info.get("version"), KNOWN),
    )


def _read_files(storage: Path, own: str, info: Json, unmapped: Unmapped) -> Iterator[Item]:
    yield from _heading(info.get("title"))

    def stored() -> Iterator[StoredMessage]:
        for file in sorted((storage / "message" / own).glob("*.json")):
            message = _json(file, unmapped)
            if message is not None:
                parts = sorted((storage / "part" / file.stem).glob("*.json"))
                found = ((part.stem, _json(part, unmapped)) for part in parts)
                yield file.stem, message, [(name, part) for name, part in found if part is not None]

    yield from opencode_pieces(stored(), unmapped)


def _json(file: Path, unmapped: Unmapped) -> Json | None:
    """What a file holds; None, and counted, where it cannot be read."""
    try:
        if file.is_file() and file.stat().st_size <= MAX_LINE:
            value = parsed(file.read_bytes())
            if isinstance(value, dict):
                return mapping(value)
    except OSError:
        pass
    unmapped[DAMAGED] += 1
    return None
