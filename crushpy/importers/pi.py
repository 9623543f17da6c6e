"""pi: one JSONL file per session below `sessions/--folder--/`; entries form a tree by `parentId`.

The branch that ends with the last entry is imported; entries of other branches are counted.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from crushpy.core.messages import Json, Note, Part, Text, Usage
from crushpy.importers import foreign
from crushpy.importers.foreign_files import LineTree, json_lines, jsonl_sessions
from crushpy.util.read_json import as_object, as_text

_HEAD_LINES = 5
_DETACHED = ("label", "session_info")
"""Entries that no message descends from."""
_IGNORED = ("session", "session_info", "model_change")
_COUNTED = ("thinking_level_change", "label")


def _places(cwd: Path) -> Sequence[Path]:
    sessions = os.environ.get("PI_CODING_AGENT_SESSION_DIR", "")
    if sessions:
        return [Path(sessions).expanduser()]
    return [Path(os.environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser() / "sessions"]


def _session(file: Path) -> foreign.ForeignSession:
    lines = islice(json_lines(file, foreign.Unmapped()), _HEAD_LINES)
    head = next((value for _, value in lines if value.get("type") == "session"), Json())
    return foreign.ForeignSession(
        id=as_text(head.get("id")) or file.stem,
        file=file,
        cwd=as_text(head.get("cwd")),
        read=lambda unmapped: _read(file, unmapped),
        created_at=foreign.seconds_of(head.get("timestamp")),
    )


PI = foreign.Source("pi", "pi", _places, partial(jsonl_sessions, look=_session))


def _read(file: Path, unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    tree = LineTree()
    title = ""
    for at, value in json_lines(file, foreign.Unmapped()):
        kind = value.get("type")
        title = as_text(value.get("name")) or title if kind == "session_info" else title
        if kind != "session":
            is_message, follows = kind not in _DETACHED, "id" not in value
            parent = as_text(value.get("parentId"))
            tree.add(at, _id(value, at), parent, is_message=is_message, follows=follows, groups=())
    if title:
        yield foreign.Heading(title)
    chosen, known = tree.branch(), tree.lines
    following: list[str] = []
    """Entries without a message: if kept messages begin with one, they begin with the next message."""
    first: dict[str, str] = {}
    for at, value in json_lines(file, unmapped):
        own, kind = _id(value, at), as_text(value.get("type"))
        if kind in _IGNORED or kind in _COUNTED:
            following.append(own)
            unmapped.update([kind] if kind in _COUNTED else [])
        elif at not in chosen:
            unmapped["entry of another branch" if at in known else "repeated entry"] += 1
        elif kind == "compaction":
            kept = as_text(value.get("firstKeptEntryId"))
            if "firstKeptEntryIndex" in value:  # early files name a line number
                kept = f"line {foreign.whole(value['firstKeptEntryIndex']) + 1}"
            yield foreign.ForeignCompaction(
                own,
                as_text(value.get("summary")),
                foreign.seconds_of(value.get("timestamp")),
                first.get(kept, kept),
                foreign.whole(value.get("tokensBefore")),
            )
        else:
            for piece in _pieces(value, own, unmapped):
                if piece.parts:
                    first |= dict.fromkeys(following, piece.id)
                    following.clear()
                yield piece


def _id(value: Json, at: int) -> str:
    return as_text(value.get("id")) or f"line {at}"


def _pieces(entry: Json, own: str, unmapped: foreign.Unmapped) -> Iterator[foreign.Piece]:
    at = foreign.seconds_of(entry.get("timestamp"))
    match entry.get("type"):
        case "message":
            yield from _message(as_object(entry.get("message")), own, at, unmapped)
        case "custom_message":
            yield from _note(own, at, foreign.texts_in(entry.get("content")))
        case "branch_summary":
            yield from _note(own, at, _branch_note(as_text(entry.get("summary"))))
        case kind:
            unmapped[as_text(kind) or "line without a type"] += 1


def _message(message: Json, own: str, at: float, unmapped: foreign.Unmapped) -> Iterator[foreign.Piece]:
    at = foreign.seconds_of(message.get("timestamp")) or at
    match message.get("role"):
        case "user":
            parts = _parts(message.get("content"), unmapped)
            yield foreign.Piece(own, "user", parts, at, own)
        case "assistant":
            yield from _reply(message, own, at, unmapped)
        case "toolResult":
            shown = _parts(message.get("content"), unmapped)
            result = foreign.tool_result(message.get("toolCallId"), shown, message.get("isError") is True)
            yield foreign.Piece(own, "tool", (result,), at, own)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            command, output = as_text(message.get("command")), as_text(message.get("output"))
            yield from _note(own, at, f"The user ran `{command}`:\n{output}")
        case "custom" | "hookMessage":
            yield from _note(own, at, foreign.texts_in(message.get("content")))
        case "branchSummary":
            yield from _note(own, at, _branch_note(as_text(message.get("summary"))))
        case role:
            unmapped[f"{as_text(role)} message".strip()] += 1


def _reply(message: Json, own: str, at: float, unmapped: foreign.Unmapped) -> Iterator[foreign.Piece]:
    parts = _parts(message.get("content"), unmapped)
    if not parts:
        unmapped["empty reply"] += 1
    names = filter(None, (as_text(message.get("provider")), as_text(message.get("model"))))
    yield foreign.Piece(
        own, "assistant", parts, at, own, "/".join(names), _usage(as_object(message.get("usage")))
    )


def _parts(content: Any, unmapped: foreign.Unmapped) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content.strip() else ()
    return tuple(foreign.reply_parts(content, unmapped, "toolCall", "arguments"))


def _branch_note(summary: str) -> str:
    return f"Summary of an abandoned branch:\n{summary}" if summary else ""


def _note(own: str, at: float, text: str) -> Iterator[foreign.Piece]:
    if text.strip():
        yield foreign.Piece(own, "user", (Note(text),), at, own)


def _usage(given: Json) -> Usage | None:
    counts = (foreign.whole(given.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
    return foreign.usage(*counts, cost=foreign.number(as_object(given.get("cost")).get("total")))
