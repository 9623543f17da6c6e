"""pi: one JSONL file a session, below `sessions/--folder--/`; entries form a tree by `parentId`.

What is imported is the branch that ends with the last entry; other branches are counted.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from crushpy.core.messages import Image, Json, Note, Part, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.importers.foreign import (
    ForeignCompaction,
    ForeignSession,
    Heading,
    Item,
    NoSession,
    Piece,
    Unmapped,
    looked_at,
)
from crushpy.importers.json_lines import json_lines, regular_files
from crushpy.importers.line_tree import LineTree
from crushpy.importers.values import (
    arguments,
    image,
    listing,
    mapping,
    newer_version,
    number,
    seconds_of,
    text_of,
    usage,
    whole,
)

KNOWN = 3
_HEAD = 5
_MARKS = ("label", "session_info")
"""Entries that hang anywhere and lead nowhere."""
_QUIET = ("session", "session_info", "model_change", "thinking_level_change", "label")


class Pi:
    name = "pi"
    title = "pi"

    def places(self, cwd: Path) -> Sequence[Path]:
        sessions = os.environ.get("PI_CODING_AGENT_SESSION_DIR", "")
        if sessions:
            return [Path(sessions).expanduser()]
        return [Path(os.environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser() / "sessions"]

    def sessions(self, path: Path) -> Iterator[ForeignSession | NoSession]:
        for file in regular_files(path, ".jsonl"):
            yield looked_at(file, _session)


def _session(file: Path) -> ForeignSession:
    lines = islice(json_lines(file, Unmapped()), _HEAD)
    head = next((line.value for line in lines if line.value.get("type") == "session"), Json())
    return ForeignSession(
        id=text_of(head.get("id")) or file.stem,
        file=file,
        cwd=text_of(head.get("cwd")),
        read=lambda unmapped: _read(file, unmapped),
        created_at=seconds_of(head.get("timestamp")),
        note=newer_version("pi", head.get("version"), KNOWN),
    )


def _read(file: Path, unmapped: Unmapped) -> Iterator[Item]:
    tree = LineTree()
    title = ""
    for at, value in json_lines(file, Unmapped()):
        kind = value.get("type")
        title = text_of(value.get("name")) or title if kind == "session_info" else title
        if kind != "session":
            parent = text_of(value.get("parentId")) or None
            tree.add(at, _id(value, at), parent, is_message=kind not in _MARKS, follows="id" not in value)
    if title:
        yield Heading(title)
    chosen = tree.branch()
    following: list[str] = []
    """Entries without a message of their own: what is kept from one of them on begins with the next."""
    first: dict[str, str] = {}
    for at, value in json_lines(file, unmapped):
        own, kind = _id(value, at), text_of(value.get("type"))
        if kind in _QUIET:
            following.append(own)
        elif at not in chosen:
            unmapped["entry of another branch" if tree.knows(at) else "repeated entry"] += 1
        elif kind == "compaction":
            kept = text_of(value.get("firstKeptEntryId"))
            if "firstKeptEntryIndex" in value:  # of an early file, which counts its lines
                kept = f"line {whole(value['firstKeptEntryIndex']) + 1}"
            yield ForeignCompaction(
                own,
                text_of(value.get("summary")),
                seconds_of(value.get("timestamp")),
                first.get(kept, kept),
                whole(value.get("tokensBefore")),
            )
        else:
            for piece in _pieces(value, own, unmapped):
                first |= dict.fromkeys(following, piece.id)
                following.clear()
                yield piece


def _id(value: Json, at: int) -> str:
    return text_of(value.get("id")) or f"line {at}"


def _pieces(entry: Json, own: str, unmapped: Unmapped) -> Iterator[Piece]:
    at = seconds_of(entry.get("timestamp"))
    match entry.get("type"):
        case "message":
            yield from _message(mapping(entry.get("message")), own, at, unmapped)
        case "custom_message":
            yield from _note(own, at, _text(entry.get("content")))
        case "branch_summary":
            yield from _note(own, at, _left(text_of(entry.get("summary"))))
        case kind:
            unmapped[text_of(kind) or "line without a type"] += 1


def _message(message: Json, own: str, at: float, unmapped: Unmapped) -> Iterator[Piece]:
    at = seconds_of(message.get("timestamp")) or at
    match message.get("role"):
        case "user":
            parts = _parts(message.get("content"), unmapped)
            yield Piece(own, "user", parts, at, own)
        case "assistant":
            yield from _reply(message, own, at, unmapped)
        case "toolResult":
            shown = _parts(message.get("content"), unmapped)
            text = "\n".join(part.text for part in shown if isinstance(part, Text))
            images = tuple(part for part in shown if isinstance(part, Image))
            failed = message.get("isError") is True
            result = ToolResult(text_of(message.get("toolCallId")), "", text, failed, images)
            yield Piece(own, "tool", (result,), at, own)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            command, output = text_of(message.get("command")), text_of(message.get("output"))
            yield from _note(own, at, f"The user ran `{command}`:\n{output}")
        case "custom" | "hookMessage":
            yield from _note(own, at, _text(message.get("content")))
        case "branchSummary":
            yield from _note(own, at, _left(text_of(message.get("summary"))))
        case role:
            unmapped[f"{text_of(role)} message".strip()] += 1


def _reply(message: Json, own: str, at: float, unmapped: Unmapped) -> Iterator[Piece]:
    parts = _parts(message.get("content"), unmapped)
    if not parts:
        unmapped["empty reply"] += 1
        return
    names = filter(None, (text_of(message.get("provider")), text_of(message.get("model"))))
    yield Piece(own, "assistant", parts, at, own, "/".join(names), _usage(mapping(message.get("usage"))))


def _parts(content: Any, unmapped: Unmapped) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content.strip() else ()
    parts: list[Part] = []
    for block in map(mapping, listing(content)):
        match block.get("type"):
            case "text":
                parts += [Text(text)] if (text := text_of(block.get("text"))) else []
            case "thinking":
                parts += [Thinking(text)] if (text := text_of(block.get("thinking"))) else []
            case "image":
                parts.append(image(block.get("mimeType"), block.get("data")))
            case "toolCall":
                args, bad = arguments(block.get("arguments"))
                parts.append(ToolCall(text_of(block.get("id")), text_of(block.get("name")), args, bad))
            case kind:
                unmapped[f"block {text_of(kind)}".strip()] += 1
    return tuple(parts)


def _text(content: Any) -> str:
    return "\n".join(part.text for part in _parts(content, Unmapped()) if isinstance(part, Text))


def _left(summary: str) -> str:
    return f"Summary of a branch that was left:\n{summary}" if summary else ""


def _note(own: str, at: float, text: str) -> Iterator[Piece]:
    if text.strip():
        yield Piece(own, "user", (Note(text),), at, own)


def _usage(given: Json) -> Usage | None:
    cost = number(mapping(given.get("cost")).get("total"))
    fresh, output = whole(given.get("input")), whole(given.get("output"))
    return usage(fresh, output, whole(given.get("cacheRead")), whole(given.get("cacheWrite")), cost)
