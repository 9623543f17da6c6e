"""Crush: a SQLite database for each project, `.crush/crush.db`, with tables of sessions and messages."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.core.messages import Image, Json, Note, Part, Text, Thinking, ToolCall, ToolResult
from crushpy.importers.foreign import (
    ForeignCompaction,
    ForeignSession,
    Heading,
    Item,
    NoSession,
    Piece,
    Unmapped,
    UnreadableSource,
)
from crushpy.importers.foreign_database import ForeignDatabase, Row, reading
from crushpy.importers.values import arguments, image, listing, mapping, parsed, seconds_of, text_of

KNOWN = 20260127000000
"""The newest step of its schema that is known."""
_FILE = "crush.db"


class Crush:
    name = "crush"
    title = "Crush"

    def places(self, cwd: Path) -> Sequence[Path]:
        shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        data = Path(os.environ.get("CRUSH_GLOBAL_DATA") or f"{shared}/crush").expanduser()
        near = [folder / ".crush" for folder in (cwd, *cwd.parents) if (folder / ".crush" / _FILE).is_file()]
        found = [*(near[:1] or [cwd / ".crush"]), *_projects(data / "projects.json"), data]
        return list(dict.fromkeys(found))

    def sessions(self, path: Path) -> Iterator[ForeignSession | NoSession]:
        for file in (path, path / _FILE, path / ".crush" / _FILE):
            if file.is_file():
                try:
                    yield from _sessions(file)
                except UnreadableSource as error:
                    yield NoSession(file, error.message)
                return


def _projects(index: Path) -> list[Path]:
    """The data folders of the projects that Crush was used in."""
    with suppress(OSError, ValueError):
        given = mapping(json.loads(index.read_text(encoding="utf-8")))
        return [Path(folder) for one in listing(given.get("projects")) if (folder := _data_dir(mapping(one)))]
    return []


def _data_dir(project: Json) -> str:
    folder = text_of(project.get("data_dir"))
    return folder if folder.startswith("/") and "\0" not in folder else ""


def _sessions(file: Path) -> Iterator[ForeignSession | NoSession]:
    folder = file.absolute().parent
    cwd = str(folder.parent) if folder.name.startswith(".") else ""
    with reading(file) as database:
        database.require(
            "Crush",
            sessions=("id", "parent_session_id", "title", "created_at"),
            messages=("id", "session_id", "role", "parts", "created_at"),
        )
        note = _version_note(database)
        rows = list(database.rows("SELECT * FROM sessions ORDER BY created_at, id"))
    for row in rows:
        own = str(row["id"])
        if row["parent_session_id"]:
            yield NoSession(file)
            continue
        summary = str(row["summary_message_id"] or "") if "summary_message_id" in row.keys() else ""  # noqa: SIM118
        yield ForeignSession(
            id=own,
            file=file,
            cwd=cwd,
            read=lambda unmapped, row=row, summary=summary: _read(file, row, summary, unmapped),
            created_at=seconds_of(row["created_at"]),
            note=note,
        )


def _version_note(database: ForeignDatabase) -> str:
    if "version_id" not in database.columns("goose_db_version"):
        return ""
    rows = database.rows("SELECT max(version_id) AS version FROM goose_db_version")
    version = next(rows)["version"]
    if not isinstance(version, int) or version <= KNOWN:
        return ""
    return f"written by a newer Crush (schema {version}): what is understood is imported"


def _read(file: Path, session: Row, summary: str, unmapped: Unmapped) -> Iterator[Item]:
    if session["title"]:
        yield Heading(str(session["title"]))
    with reading(file) as database:
        marked = "is_summary_message" in database.columns("messages")
        statement = "SELECT * FROM messages WHERE session_id = ? ORDER BY created_at, rowid"
        for row in database.rows(statement, (session["id"],), unmapped):
            parts = [mapping(part) for part in listing(parsed(row["parts"] or "[]"))]
            if not parts and row["parts"] not in ("[]", b"[]"):
                unmapped["damaged"] += 1
            if (marked and row["is_summary_message"]) or (summary and row["id"] == summary):
                text = "\n".join(
                    text_of(_data(part).get("text")) for part in parts if part.get("type") == "text"
                )
                if text.strip():
                    yield ForeignCompaction(str(row["id"]), text, seconds_of(row["created_at"]))
                else:
                    unmapped["compaction without a summary"] += 1
            else:
                yield from _message(row, parts, unmapped)


def _data(part: Json) -> Json:
    return mapping(part.get("data"))


def _message(row: Row, parts: list[Json], unmapped: Unmapped) -> Iterator[Item]:
    own, at, role = str(row["id"]), seconds_of(row["created_at"]), row["role"]
    columns = row.keys()
    names = [row[name] for name in ("provider", "model") if name in columns]
    model = "/".join(str(name) for name in names if name) if role == "assistant" else ""
    for place, part in enumerate(parts):
        if part.get("type") == "finish":
            continue
        made = _part(part, unmapped)
        if made is None:
            continue
        if isinstance(made, ToolResult):
            yield Piece(f"{own}/{place}", "tool", (made,), at)
        elif role in ("user", "assistant"):
            yield Piece(f"{own}/{place}", role, (made,), at, own, model)
        else:
            unmapped[f"part of a {text_of(role)} message"] += 1


def _part(part: Json, unmapped: Unmapped) -> Part | None:
    data: Any = _data(part)
    match part.get("type"):
        case "text":
            return Text(text) if (text := text_of(data.get("text"))) else None
        case "reasoning":
            return Thinking(text) if (text := text_of(data.get("thinking"))) else None
        case "tool_call":
            args, bad = arguments(data.get("input"))
            return ToolCall(text_of(data.get("id")), text_of(data.get("name")), args, bad)
        case "tool_result":
            shown = image(data.get("mime_type"), data.get("data")) if data.get("data") else None
            images = (shown,) if isinstance(shown, Image) else ()
            failed = data.get("is_error") is True
            return ToolResult(
                text_of(data.get("tool_call_id")), "", text_of(data.get("content")), failed, images
            )
        case "binary":
            return image(data.get("MIMEType"), data.get("Data"))
        case "image_url":
            return Text(f"[image {text_of(data.get('url'))[:200]}]")
        case "shell_command":
            return Note(f"The user ran `{text_of(data.get('command'))}`:\n{text_of(data.get('output'))}")
        case kind:
            unmapped[f"part {text_of(kind)}".strip()] += 1
            return None
