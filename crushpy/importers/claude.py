"""Claude Code: one JSONL file per session below `projects/<folder>/`; lines form a tree by `parentUuid`.

The branch that ends with the last message is imported; messages of other branches are counted.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from crushpy.core.messages import Json, Part, Text, Usage
from crushpy.importers import foreign
from crushpy.importers.foreign import listing, seconds_of, whole
from crushpy.importers.foreign_files import LineTree, json_lines, jsonl_sessions
from crushpy.util.read_json import as_object, as_text

_HEAD_LINES = 200
"""Lines in which the folder is looked for."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATED_TEXT = re.compile(
    r"<(?:command-name|command-message|command-args|local-command-\w+|system-reminder|bash-\w+)\b"
)
"""The beginnings of texts that Claude Code writes in the user's name."""
_TITLES = ("custom-title", "ai-title", "summary", "summary of another session")
"""Sources of the title, the best first."""


def _places(cwd: Path) -> Sequence[Path]:
    chosen = os.environ.get("CLAUDE_CONFIG_DIR", "")
    homes = [chosen] if chosen else ["~/.claude", "~/.config/claude"]
    return [Path(home).expanduser() / "projects" for home in homes]


def _sessions_in(path: Path) -> Iterator[foreign.Found]:
    def look(file: Path) -> foreign.Found:
        is_task = file.name.startswith("agent-") and file != path
        return foreign.SkippedSession(file) if is_task else _session(file)

    return jsonl_sessions(path, look)


CLAUDE_CODE = foreign.Source("claude", "Claude Code", _places, _sessions_in)


def _session(file: Path) -> foreign.ForeignSession:
    found: dict[str, str] = {}
    created_at = 0.0
    for _, value in islice(json_lines(file, foreign.Unmapped()), _HEAD_LINES):
        for key in ("cwd", "sessionId"):
            found[key] = found.get(key) or as_text(value.get(key))
        created_at = created_at or seconds_of(value.get("timestamp"))
    own = file.stem if _UUID.fullmatch(file.stem.lower()) else found.get("sessionId") or file.stem
    return foreign.ForeignSession(
        id=own,
        file=file,
        cwd=found.get("cwd", ""),
        read=lambda unmapped: _read(file, unmapped),
        created_at=created_at,
    )


def _read(file: Path, unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    tree, title = _index(file)
    chosen, known = tree.branch(), tree.lines
    if title:
        yield foreign.Heading(title)
    boundary: Json | None = None
    for number, value in json_lines(file, unmapped):
        kind = as_text(value.get("type"))
        if kind in _TITLES:
            continue
        if value.get("isSidechain") is True:
            unmapped["sub-agent message"] += 1
        elif kind == "system" and value.get("subtype") == "compact_boundary":
            boundary = value if number in chosen else boundary
        elif kind not in ("user", "assistant"):
            unmapped[kind or "line without a type"] += 1
        elif number not in chosen:
            unmapped["message of another branch" if number in known else "repeated message"] += 1
        elif value.get("isCompactSummary") is True:
            tokens = whole(as_object((boundary or {}).get("compactMetadata")).get("preTokens"))
            summary = foreign.texts_in(as_object(value.get("message")).get("content"))
            at = seconds_of(value.get("timestamp"))
            yield foreign.ForeignCompaction(_id(value, number), summary, at, tokens_before=tokens)
            boundary = None
        elif kind == "assistant":
            yield from _reply(value, _id(value, number), unmapped)
        else:
            yield from _prompt(value, _id(value, number), unmapped)
    if boundary is not None:
        unmapped["compaction without a summary"] += 1


def _index(file: Path) -> tuple[LineTree, str]:
    """The tree of lines, and the session's title."""
    tree = LineTree()
    titles: dict[str, str] = {}
    for number, value in json_lines(file, foreign.Unmapped()):
        kind = as_text(value.get("type"))
        if kind == "summary":
            rank = kind if as_text(value.get("leafUuid")) in tree else "summary of another session"
            titles[rank] = as_text(value.get("summary"))
        elif kind in _TITLES:
            titles[kind] = as_text(value.get("customTitle") or value.get("aiTitle"))
        if value.get("isSidechain") is not True:
            _add_line(tree, number, value, kind)
    return tree, next((titles[rank] for rank in _TITLES if titles.get(rank)), "")


def _add_line(tree: LineTree, number: int, value: Json, kind: str) -> None:
    message = as_object(value.get("message"))
    is_message = kind in ("user", "assistant") and bool(message.get("content"))
    has_id = bool(as_text(value.get("uuid")))
    if not has_id and not is_message:
        return
    starts_over = value.get("isCompactSummary") is True or value.get("subtype") == "compact_boundary"
    blocks = _blocks(message.get("content"))
    # A reply with several calls branches into one line per result.
    calls = [as_text(block.get("id") or block.get("tool_use_id")) for block in blocks]
    reply = as_text(message.get("id")) if kind == "assistant" else ""
    tree.add(
        number,
        _id(value, number),
        as_text(value.get("parentUuid") or value.get("logicalParentUuid")) if has_id else "",
        is_message=is_message,
        follows=starts_over or not has_id,
        groups=[f"reply {reply}"] * bool(reply) + [f"call {call}" for call in calls if call],
    )


def _id(value: Json, number: int) -> str:
    return as_text(value.get("uuid")) or f"line {number}"


def _blocks(content: Any) -> list[Json]:
    given = [{"type": "text", "text": content}] if isinstance(content, str) else listing(content)
    return [as_object(block) for block in given]


def _reply(value: Json, own: str, unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    message = as_object(value.get("message"))
    model = as_text(message.get("model"))
    if value.get("isApiErrorMessage") is True or model == "<synthetic>":
        unmapped["error message"] += 1
        return
    parts = foreign.reply_parts(_blocks(message.get("content")), unmapped, "tool_use", "input")
    reply = as_text(message.get("id")) or own
    used = _usage(as_object(message.get("usage")))  # each line of a reply has it, the last one in full
    model = f"anthropic/{model}" if model else ""
    at = seconds_of(value.get("timestamp"))
    yield foreign.Piece(own, "assistant", tuple(parts), at, reply, model, used)


def _prompt(value: Json, own: str, unmapped: foreign.Unmapped) -> Iterator[foreign.Item]:
    if value.get("isMeta") is True:
        unmapped["generated message"] += 1
        return
    at = seconds_of(value.get("timestamp"))
    parts: list[Part] = []
    for block in _blocks(as_object(value.get("message")).get("content")):
        if block.get("type") == "tool_result":
            call = block.get("tool_use_id")
            given = _shown(_blocks(block.get("content")), unmapped)
            result = foreign.tool_result(call, given, block.get("is_error") is True)
            yield foreign.Piece(f"{own}/{as_text(call)}", "tool", (result,), at)
        elif block.get("type") == "text" and _GENERATED_TEXT.match(as_text(block.get("text")).lstrip()):
            unmapped["generated message"] += 1
        else:
            parts += _shown([block], unmapped)
    if parts:
        yield foreign.Piece(own, "user", tuple(parts), at)


def _shown(blocks: list[Json], unmapped: foreign.Unmapped) -> Iterator[Part]:
    """Texts and attachments."""
    for block in blocks:
        kind, source = as_text(block.get("type")), as_object(block.get("source"))
        if kind == "text":
            yield from foreign.parts_of(Text, as_text(block.get("text")).strip() and block.get("text"))
        elif kind not in ("image", "document"):
            unmapped[f"block {kind}".strip()] += 1
        elif source.get("type") == "url":
            yield Text(f"[{kind} {as_text(source.get('url'))[:200]}]")
        else:
            yield foreign.image(source.get("media_type"), source.get("data"))


def _usage(given: Json) -> Usage | None:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    lasting = whole(as_object(given.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    return foreign.usage(*(whole(given.get(name)) for name in names), hour_write=lasting)
