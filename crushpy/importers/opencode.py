"""opencode: a SQLite database, in older versions a folder of JSON files, of sessions, messages and parts.

`opencode export` writes one session as one JSON file.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from crushpy.core.messages import Image, Json, Note, Part, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.importers import foreign, foreign_files
from crushpy.importers.foreign import listing, seconds_of, whole
from crushpy.util.read_json import as_object, as_text

_DEFAULT_TITLE = re.compile(r"(?:New|Child) session - ")
_FILE_NAME = re.compile(r"[\w.-]{1,200}")
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT id, data FROM part WHERE message_id = ? ORDER BY id"

StoredMessage = tuple[str, Json, list[tuple[str, Json]]]
"""A message's id, its data, and its parts with their ids, in order."""


def _places(cwd: Path) -> Sequence[Path]:
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    data = Path(os.environ.get("OPENCODE_DATA_DIR") or f"{shared}/opencode").expanduser()
    chosen = os.environ.get("OPENCODE_DB", "")
    return [data / chosen, data] if chosen and chosen != ":memory:" else [data]


def _sessions_in(path: Path) -> Iterator[foreign.Found]:
    if path.is_file():
        look = _database_sessions if foreign_files.is_database(path) else _json_sessions
        yield from foreign_files.readable_sessions(path, path, look)
    for file in sorted(path.glob("opencode*.db")):
        yield from foreign_files.readable_sessions(file, path, _database_sessions)
    for file in sorted(path.glob("*.json")):
        yield from foreign_files.readable_sessions(file, path, _exported_sessions)
    # Newer versions copied these into the database and left the files behind.
    for storage in (path, path / "storage"):
        for head in sorted((storage / "session").glob("*/*.json")):
            yield from foreign_files.readable_sessions(head, path, _file_sessions)


OPENCODE = foreign.Source("opencode", "opencode", _places, _sessions_in)


def _database_sessions(file: Path) -> Iterator[foreign.Found]:
    with foreign_files.reading(file) as database:
        database.require(
            "opencode",
            session=("id", "parent_id", "directory", "title", "time_created"),
            message=("id", "session_id", "time_created", "data"),
            part=("id", "message_id", "session_id", "data"),
        )
        rows = list(database.rows("SELECT * FROM session ORDER BY time_created, id"))
    for row in rows:
        info: Json = {"parentID": row["parent_id"], "directory": row["directory"], "title": row["title"]}
        info["time"] = {"created": row["time_created"]}
        yield _session(str(row["id"]), file, info, partial(_stored_rows, file, row["id"]))


def _stored_rows(file: Path, own: str, unmapped: foreign.Unmapped) -> Iterator[StoredMessage]:
    with foreign_files.reading(file) as database:

        def decoded(statement: str, key: str) -> Iterator[tuple[str, Json]]:
            for row in list(database.rows(statement, (key,), unmapped)):
                value = foreign_files.decoded_object(row["data"], f"row {row['id']}", unmapped)
                if value is not None:
                    yield str(row["id"]), value

        for message, data in decoded(_MESSAGES, own):
            yield message, data, list(decoded(_PARTS, message))


def _json_sessions(file: Path) -> Iterator[foreign.Found]:
    """The session of an export, or of the older storage."""
    found = list(_exported_sessions(file))
    yield from found or (_file_sessions(file.absolute()) if len(file.absolute().parents) > 2 else ())


def _exported_sessions(file: Path) -> Iterator[foreign.Found]:
    value = next(foreign_files.json_files([file], foreign.Unmapped()), ("", Json()))[1]
    info, messages = as_object(value.get("info")), value.get("messages")
    if as_text(info.get("id")) and isinstance(messages, list):
        yield _session(info["id"], file, info, lambda _: _exported_rows(listing(messages)))


def _exported_rows(messages: list[Any]) -> Iterator[StoredMessage]:
    """Redacted ids are not unique: numbers replace those of calls, and repeated ones of messages."""
    seen: set[str] = set()
    for at, message in enumerate(map(as_object, messages)):
        info = as_object(message.get("info"))
        own = as_text(info.get("id"))
        parts = map(as_object, listing(message.get("parts")))
        numbered = [(str(place), part | {"callID": f"{at}-{place}"}) for place, part in enumerate(parts)]
        yield own if own and own not in seen else f"message {at}", info, numbered
        seen.add(own)


def _session(
    own: str, file: Path, info: Json, stored: Callable[[foreign.Unmapped], Iterator[StoredMessage]]
) -> foreign.Found:
    if info.get("parentID"):
        return foreign.SkippedSession(file)

    def read(unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
        return _items(info.get("title"), stored(unmapped), unmapped)

    return foreign.ForeignSession(own, file, as_text(info.get("directory")), read, _created(info))


def _file_sessions(head: Path) -> Iterator[foreign.Found]:
    storage, own = head.parents[2], head.stem
    info = next(foreign_files.json_files([head], foreign.Unmapped()), ("", Json()))[1]
    if not info or not _FILE_NAME.fullmatch(own):
        yield foreign.SkippedSession(head, "it cannot be read")
    else:
        yield _session(own, head, info, partial(_stored_files, storage, own))


def _stored_files(storage: Path, own: str, unmapped: foreign.Unmapped) -> Iterator[StoredMessage]:
    def inside(folder: Path) -> Iterator[Path]:
        return (file for file in folder.glob("*.json") if foreign_files.leads_inside(file, storage))

    for name, message in foreign_files.json_files(inside(storage / "message" / own), unmapped):
        yield name, message, list(foreign_files.json_files(inside(storage / "part" / name), unmapped))


def _created(info: Json) -> float:
    return seconds_of(as_object(info.get("time")).get("created"))


def _items(
    title: Any, messages: Iterable[StoredMessage], unmapped: foreign.Unmapped
) -> Iterator[foreign.Item]:
    if as_text(title) and not _DEFAULT_TITLE.match(title):
        yield foreign.Heading(title)
    keep_from = ""
    for own, info, parts in messages:
        for _, part in parts:
            if part.get("type") == "compaction":
                keep_from = as_text(part.get("tail_start_id"))
        if info.get("role") == "assistant" and info.get("summary") is True:
            summary = foreign.texts_in([part for _, part in parts])
            if summary.strip():
                used = _usage(info) or Usage()
                before = used.total - used.output_tokens
                yield foreign.without_message(used)
                yield foreign.ForeignCompaction(own, summary, _created(info), keep_from, before)
            else:
                unmapped["compaction without a summary"] += 1
            keep_from = ""
        elif info.get("role") == "assistant":
            yield from _reply(own, info, parts, unmapped)
        elif info.get("role") == "user":
            for name, part in parts:
                for made in _parts(part, unmapped, is_reply=False):
                    yield foreign.Piece(f"{own}/{name}", "user", (made,), _created(info), own)
        else:
            unmapped["message without a role"] += 1


def _reply(
    own: str, info: Json, parts: list[tuple[str, Json]], unmapped: foreign.Unmapped
) -> Iterator[foreign.Item]:
    """A message may hold several steps: each is a reply followed by the results of its calls."""
    model = "/".join(filter(None, (as_text(info.get("providerID")), as_text(info.get("modelID")))))
    # The message has the figures of its last step.
    steps = [part for _, part in parts if part.get("type") == "step-finish" and part.get("tokens")]
    reports = map(_usage, steps or [info])
    at, used, step = _created(info), next(reports), 0
    results: list[foreign.Piece] = []
    for name, part in parts:
        if part.get("type") == "step-start":
            yield from results
            results, step = [], step + 1
            if step > 1:
                yield foreign.without_message(used)
                used = next(reports, None)
        for made in _parts(part, unmapped, is_reply=True):
            yield foreign.Piece(f"{own}/{name}", "assistant", (made,), at, f"{own}:{step}", model, used)
            used = None
            if isinstance(made, ToolCall) and (result := _result(made.id, _state(part))):
                results.append(foreign.Piece(f"{own}/{name}/result", "tool", (result,), at))
    yield from results
    for left in filter(None, (used, *reports)):
        yield foreign.without_message(left)


def _parts(part: Json, unmapped: foreign.Unmapped, *, is_reply: bool) -> list[Part]:
    kind, text = as_text(part.get("type")), as_text(part.get("text"))
    match kind:
        case "text" if part.get("ignored") is True or not text.strip():
            return []
        case "text":
            return [Note(text) if part.get("synthetic") is True else Text(text)]
        case "reasoning" if is_reply:
            return foreign.parts_of(Thinking, text)
        case "tool" if is_reply:
            return [foreign.tool_call(part.get("callID"), part.get("tool"), _state(part).get("input"))]
        case "file":
            shown = _attachment(part)
            return [shown] if isinstance(shown, Text) or not is_reply else []
        case "step-start" | "step-finish" | "compaction":
            return []
        case _:
            unmapped[f"part {kind}".strip()] += 1
            return []


def _state(part: Json) -> Json:
    return as_object(part.get("state"))


def _result(call: str, state: Json) -> ToolResult | None:
    """None for a call that was still running."""
    if state.get("status") == "error":
        return ToolResult(call, "", as_text(state.get("error")), is_error=True)
    if state.get("status") != "completed":
        return None
    code = as_object(state.get("metadata")).get("exit")
    failed = isinstance(code, int) and code != 0
    text = as_text(state.get("output")) + (f"\nExit code: {code}" if failed else "")
    images = [part for part in map(_attachment, listing(state.get("attachments"))) if isinstance(part, Image)]
    return foreign.tool_result(call, [Text(text), *images], failed)


def _attachment(value: Any) -> Part:
    part = as_object(value)
    kind, url = as_text(part.get("mime")), as_text(part.get("url"))
    if kind.startswith("image/"):
        return foreign.image_from_url(url, kind)
    return Text(f"[attachment {kind} {as_text(part.get('filename')) or url[:200]}]")


def _usage(info: Json) -> Usage | None:
    given = as_object(info.get("tokens"))
    cache = as_object(given.get("cache"))
    asked, cached = whole(given.get("input")), (whole(cache.get("read")), whole(cache.get("write")))
    output = whole(given.get("output"))
    if "total" not in given:  # with it, the output includes the reasoning
        output += whole(given.get("reasoning"))
    return foreign.usage(asked, output, *cached, foreign.number(info.get("cost")))
