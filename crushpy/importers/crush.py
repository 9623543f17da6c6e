"""Crush: one SQLite database per project, `.crush/crush.db`, with tables of sessions and messages."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from crushpy.core.messages import Image, Json, Note, Part, Text, Thinking, ToolResult
from crushpy.importers import foreign
from crushpy.importers.foreign import listing, seconds_of
from crushpy.importers.foreign_files import Row, readable_sessions, reading
from crushpy.util.read_json import as_object, as_text

_FILE = "crush.db"


def _places(cwd: Path) -> Sequence[Path]:
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    data = Path(os.environ.get("CRUSH_GLOBAL_DATA") or f"{shared}/crush").expanduser()
    near = [folder / ".crush" for folder in (cwd, *cwd.parents) if (folder / ".crush" / _FILE).is_file()]
    found = [*(near[:1] or [cwd / ".crush"]), *_projects(data / "projects.json"), data]
    return list(dict.fromkeys(found))


def _sessions_in(path: Path) -> Iterator[foreign.Found]:
    candidates = (path, path / _FILE, path / ".crush" / _FILE)
    file = next((file for file in candidates if file.is_file()), None)
    return readable_sessions(file, path, _sessions) if file else iter(())


CRUSH = foreign.Source("crush", "Crush", _places, _sessions_in)


def _projects(index: Path) -> list[Path]:
    """The data folders of the projects in which Crush was used."""
    with suppress(OSError, ValueError):
        given = as_object(json.loads(index.read_text(encoding="utf-8")))
        folders = [as_text(as_object(entry).get("data_dir")) for entry in listing(given.get("projects"))]
        return [Path(folder) for folder in folders if folder.startswith("/") and "\0" not in folder]
    return []


def _sessions(file: Path) -> Iterator[foreign.Found]:
    folder = file.absolute().parent
    cwd = str(folder.parent) if folder.name.startswith(".") else ""
    with reading(file) as database:
        database.require(
            "Crush",
            sessions=("id", "parent_session_id", "title", "created_at"),
            messages=("id", "session_id", "role", "parts", "created_at"),
        )
        rows = list(database.rows("SELECT * FROM sessions ORDER BY created_at, id"))
    for row in rows:
        own = str(row["id"])
        if row["parent_session_id"]:
            yield foreign.SkippedSession(file)
            continue
        summary = str(row["summary_message_id"] or "") if "summary_message_id" in row.keys() else ""  # noqa: SIM118
        yield foreign.ForeignSession(
            id=own,
            file=file,
            cwd=cwd,
            read=lambda unmapped, row=row, summary=summary: _read(file, row, summary, unmapped),
            created_at=seconds_of(row["created_at"]),
        )


def _read(file: Path, session: Row, summary: str, unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    if session["title"]:
        yield foreign.Heading(str(session["title"]))
    with reading(file) as database:
        marked = "is_summary_message" in database.columns("messages")
        statement = "SELECT * FROM messages WHERE session_id = ? ORDER BY created_at, rowid"
        for row in database.rows(statement, (session["id"],), unmapped):
            parts = [as_object(part) for part in listing(foreign.parsed(row["parts"] or "[]"))]
            if not parts and row["parts"] not in ("[]", b"[]"):
                unmapped.add_damaged(f"message {row['id']}")
            if (marked and row["is_summary_message"]) or (summary and row["id"] == summary):
                text = foreign.texts_in([{"type": part.get("type"), **_data(part)} for part in parts])
                if text.strip():
                    yield foreign.ForeignCompaction(str(row["id"]), text, seconds_of(row["created_at"]))
                else:
                    unmapped["compaction without a summary"] += 1
            else:
                yield from _message(row, parts, unmapped)


def _data(part: Json) -> Json:
    return as_object(part.get("data"))


def _message(row: Row, parts: list[Json], unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    own, at, role = str(row["id"]), seconds_of(row["created_at"]), row["role"]
    columns = row.keys()
    names = [row[name] for name in ("provider", "model") if name in columns]
    model = "/".join(str(name) for name in names if name) if role == "assistant" else ""
    for place, part in enumerate(parts):
        made = None if part.get("type") == "finish" else _part(part, unmapped)
        if made is None:
            continue
        if isinstance(made, ToolResult):
            yield foreign.Piece(f"{own}/{place}", "tool", (made,), at)
        elif role in ("user", "assistant"):
            yield foreign.Piece(f"{own}/{place}", role, (made,), at, own, model)
        else:
            unmapped[f"part of a {as_text(role)} message"] += 1


def _part(part: Json, unmapped: foreign.Unmapped) -> Part | None:
    data = _data(part)
    match part.get("type"):
        case "text":
            return next(iter(foreign.parts_of(Text, data.get("text"))), None)
        case "reasoning":
            return next(iter(foreign.parts_of(Thinking, data.get("thinking"))), None)
        case "tool_call":
            return foreign.tool_call(data.get("id"), data.get("name"), data.get("input"))
        case "tool_result":
            shown = foreign.image(data.get("mime_type"), data.get("data")) if data.get("data") else None
            parts = [Text(as_text(data.get("content"))), *([shown] if isinstance(shown, Image) else [])]
            return foreign.tool_result(data.get("tool_call_id"), parts, data.get("is_error") is True)
        case "binary":
            return foreign.image(data.get("MIMEType"), data.get("Data"))
        case "image_url":
            return Text(f"[image {as_text(data.get('url'))[:200]}]")
        case "shell_command":
            return Note(f"The user ran `{as_text(data.get('command'))}`:\n{as_text(data.get('output'))}")
        case kind:
            unmapped[f"part {as_text(kind)}".strip()] += 1
            return None
