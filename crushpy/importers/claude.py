"""Claude Code: one JSONL file a session, below `projects/<folder>/`. Lines form a tree by `parentUuid`.

What is imported is the branch that ends with the last message; other branches are counted.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from crushpy.core.messages import Image, Json, Part, Text, Thinking, ToolCall, ToolResult, Usage
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
    seconds_of,
    text_of,
    usage,
    whole,
)

KNOWN = 2
"""The newest version whose files are known."""
_HEAD = 200
"""Lines in which folder and version are looked for."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_WORDS = re.compile(
    r"<(?:command-name|command-message|command-args|local-command-\w+|system-reminder|bash-\w+)\b"
)
"""How lines begin that Claude Code wrote itself in the user's name."""
_SYNTHETIC = "<synthetic>"


class ClaudeCode:
    name = "claude"
    title = "Claude Code"

    def places(self, cwd: Path) -> Sequence[Path]:
        chosen = os.environ.get("CLAUDE_CONFIG_DIR", "")
        homes = [chosen] if chosen else ["~/.claude", "~/.config/claude"]
        return [Path(home).expanduser() / "projects" for home in homes]

    def sessions(self, path: Path) -> Iterator[ForeignSession | NoSession]:
        for file in regular_files(path, ".jsonl"):
            if file.name.startswith("agent-") and file != path:
                yield NoSession(file)
            else:
                yield looked_at(file, _session)


def _session(file: Path) -> ForeignSession:
    found: dict[str, str] = {}
    first = 0.0
    for line in islice(json_lines(file, Unmapped()), _HEAD):
        for key in ("cwd", "sessionId", "version"):
            if key not in found and text_of(line.value.get(key)):
                found[key] = text_of(line.value[key])
        first = first or seconds_of(line.value.get("timestamp"))
    own = file.stem if _UUID.fullmatch(file.stem.lower()) else found.get("sessionId", file.stem)
    return ForeignSession(
        id=own,
        file=file,
        cwd=found.get("cwd", ""),
        read=lambda unmapped: _read(file, unmapped),
        created_at=first,
        note=newer_version("Claude Code", found.get("version", ""), KNOWN),
    )


def _read(file: Path, unmapped: Unmapped) -> Iterator[Item]:
    tree, title = _index(file)
    chosen = tree.branch()
    if title:
        yield Heading(title)
    boundary: Json | None = None
    seen: set[str] = set()
    for line in json_lines(file, unmapped):
        value = line.value
        kind = text_of(value.get("type"))
        if kind in ("summary", "custom-title", "ai-title"):
            continue  # read before
        if value.get("isSidechain") is True:
            unmapped["sub-agent message"] += 1
        elif kind == "system" and value.get("subtype") == "compact_boundary":
            boundary = value if line.number in chosen else boundary
        elif kind not in ("user", "assistant"):
            unmapped[kind or "line without a type"] += 1
        elif line.number not in chosen:
            unmapped["message of another branch" if tree.knows(line.number) else "repeated message"] += 1
        elif value.get("isCompactSummary") is True:
            yield _compaction(value, boundary, line.number)
            boundary = None
        else:
            yield from _message(value, line.number, unmapped, seen)
    if boundary is not None:
        unmapped["compaction without a summary"] += 1


def _index(file: Path) -> tuple[LineTree, str]:
    """Which line follows which, and what the session is called."""
    tree = LineTree()
    titles: dict[str, str] = {}
    for number, value in json_lines(file, Unmapped()):
        kind = text_of(value.get("type"))
        if kind == "summary":
            rank = "summary" if text_of(value.get("leafUuid")) in tree else "summary of another"
            titles[rank] = text_of(value.get("summary"))
        elif kind in ("custom-title", "ai-title"):
            titles[kind] = text_of(value.get("customTitle") or value.get("aiTitle"))
        if value.get("isSidechain") is True:
            continue
        message = mapping(value.get("message"))
        is_message = kind in ("user", "assistant") and bool(message.get("content"))
        if not text_of(value.get("uuid")):
            if is_message:
                tree.add(number, f"line {number}", None, is_message=True, follows=True)
            continue
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        fresh = value.get("isCompactSummary") is True or value.get("subtype") == "compact_boundary"
        blocks = [mapping(block) for block in listing(message.get("content"))]
        tree.add(
            number,
            text_of(value.get("uuid")),
            text_of(parent) or None,
            is_message=is_message,
            follows=fresh,
            family=text_of(message.get("id")) if kind == "assistant" else "",
            calls=[text_of(block.get("id")) for block in blocks if block.get("type") == "tool_use"],
            answers=[
                text_of(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"
            ],
        )
    ranks = ("custom-title", "ai-title", "summary", "summary of another")
    return tree, next((titles[rank] for rank in ranks if titles.get(rank)), "")


def _compaction(value: Json, boundary: Json | None, number: int) -> ForeignCompaction:
    content = mapping(value.get("message")).get("content")
    texts = [text_of(mapping(block).get("text")) for block in listing(content)]
    summary = content if isinstance(content, str) else "\n".join(texts)
    tokens = whole(mapping((boundary or {}).get("compactMetadata")).get("preTokens"))
    return ForeignCompaction(
        _id(value, number), summary, seconds_of(value.get("timestamp")), tokens_before=tokens
    )


def _id(value: Json, number: int) -> str:
    return text_of(value.get("uuid")) or f"line {number}"


def _message(value: Json, number: int, unmapped: Unmapped, seen: set[str]) -> Iterator[Item]:
    message = mapping(value.get("message"))
    at, own = seconds_of(value.get("timestamp")), _id(value, number)
    content = message.get("content")
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else listing(content)
    if value.get("type") == "assistant":
        if value.get("isApiErrorMessage") is True or message.get("model") == _SYNTHETIC:
            unmapped["error message"] += 1
            return
        parts = _reply(blocks, unmapped)
        model = text_of(message.get("model"))
        family = text_of(message.get("id")) or own
        used = None if family in seen else _usage(mapping(message.get("usage")))
        seen.add(family)  # every line of one reply repeats its figures
        yield Piece(own, "assistant", parts, at, family, f"anthropic/{model}" if model else "", used)
        return
    if value.get("isMeta") is True:
        unmapped["note of the program"] += 1
        return
    said: list[Part] = []
    for block in map(mapping, blocks):
        if block.get("type") == "tool_result":
            yield Piece(f"{own}/{text_of(block.get('tool_use_id'))}", "tool", (_result(block, unmapped),), at)
        else:
            said += _said(block, unmapped)
    if said:
        yield Piece(own, "user", tuple(said), at)


def _said(block: Json, unmapped: Unmapped) -> list[Part]:
    match block.get("type"):
        case "text" if _NOT_WORDS.match(text_of(block.get("text")).lstrip()):
            unmapped["note of the program"] += 1
        case "text":
            return [Text(text)] if (text := text_of(block.get("text"))).strip() else []
        case "image" | "document":
            return [_attachment(block)]
        case _:
            unmapped[f"block {text_of(block.get('type'))}".strip()] += 1
    return []


def _attachment(block: Json) -> Part:
    source = mapping(block.get("source"))
    if source.get("type") == "url":
        return Text(f"[{text_of(block.get('type'))} {text_of(source.get('url'))[:200]}]")
    return image(source.get("media_type"), source.get("data"))


def _reply(blocks: list[Any], unmapped: Unmapped) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in map(mapping, blocks):
        match block.get("type"):
            case "text":
                parts += [Text(text)] if (text := text_of(block.get("text"))) else []
            case "thinking":
                parts += [Thinking(text)] if (text := text_of(block.get("thinking"))) else []
            case "tool_use":
                args, bad = arguments(block.get("input"))
                parts.append(ToolCall(text_of(block.get("id")), text_of(block.get("name")), args, bad))
            case kind:
                unmapped[f"block {text_of(kind)}".strip()] += 1
    return tuple(parts)


def _result(block: Json, unmapped: Unmapped) -> ToolResult:
    content = block.get("content")
    texts = [content] if isinstance(content, str) else []
    images: list[Image] = []
    for part in map(mapping, listing(content)):
        if part.get("type") == "text":
            texts.append(text_of(part.get("text")))
        elif part.get("type") == "image":
            shown = _attachment(part)
            if isinstance(shown, Image):
                images.append(shown)
            elif isinstance(shown, Text):
                texts.append(shown.text)
        else:
            unmapped[f"block {text_of(part.get('type'))}".strip()] += 1
    return ToolResult(
        text_of(block.get("tool_use_id")), "", "\n".join(texts), block.get("is_error") is True, tuple(images)
    )


def _usage(given: Json) -> Usage | None:
    return usage(
        whole(given.get("input_tokens")),
        whole(given.get("output_tokens")),
        whole(given.get("cache_read_input_tokens")),
        whole(given.get("cache_creation_input_tokens")),
    )
