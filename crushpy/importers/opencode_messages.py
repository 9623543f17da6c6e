"""opencode's messages and their parts, as both of its stores hold them, as pieces."""

from collections.abc import Iterable, Iterator

from crushpy.core.messages import Image, Json, Note, Part, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.importers.foreign import ForeignCompaction, Item, Piece, Unmapped
from crushpy.importers.values import (
    arguments,
    image_from_url,
    listing,
    mapping,
    number,
    seconds_of,
    text_of,
    usage,
    whole,
)

StoredMessage = tuple[str, Json, list[tuple[str, Json]]]
"""A message's id, what is said of it, and its parts with their ids, in order."""
_QUIET = ("step-start", "step-finish", "compaction")


def opencode_pieces(messages: Iterable[StoredMessage], unmapped: Unmapped) -> Iterator[Item]:
    keep_from = ""
    for own, info, parts in messages:
        for _, part in parts:
            if part.get("type") == "compaction":
                keep_from = text_of(part.get("tail_start_id"))
        if info.get("role") == "assistant" and info.get("summary") is True:
            texts = [text_of(part.get("text")) for _, part in parts if part.get("type") == "text"]
            summary = "\n".join(filter(None, texts))
            if summary.strip():
                yield ForeignCompaction(own, summary, _created(info), keep_from)
            else:
                unmapped["compaction without a summary"] += 1
            keep_from = ""
        elif info.get("role") == "assistant":
            yield from _reply(own, info, parts, unmapped)
        elif info.get("role") == "user":
            yield from _said(own, info, parts, unmapped)
        else:
            unmapped["message without a role"] += 1


def _created(info: Json) -> float:
    return seconds_of(mapping(info.get("time")).get("created"))


def _said(own: str, info: Json, parts: list[tuple[str, Json]], unmapped: Unmapped) -> Iterator[Item]:
    for name, part in parts:
        made: Part | None = None
        if part.get("type") == "text" and part.get("ignored") is not True:
            text = text_of(part.get("text"))
            made = Note(text) if part.get("synthetic") is True else Text(text)
            made = made if text.strip() else None
        elif part.get("type") == "file":
            made = _file(part)
        elif part.get("type") not in _QUIET:
            unmapped[f"part {text_of(part.get('type'))}".strip()] += 1
        if made is not None:
            yield Piece(f"{own}/{name}", "user", (made,), _created(info), own)


def _reply(own: str, info: Json, parts: list[tuple[str, Json]], unmapped: Unmapped) -> Iterator[Item]:
    """One message may hold several steps: each is a reply, and the results of its calls follow it."""
    model = "/".join(filter(None, (text_of(info.get("providerID")), text_of(info.get("modelID")))))
    at, used, step = _created(info), _usage(info), 0
    answers: list[Piece] = []
    for name, part in parts:
        if part.get("type") == "step-start":
            yield from answers
            answers, step = [], step + 1
        made = _part(part, unmapped)
        if made is None:
            continue
        yield Piece(f"{own}/{name}", "assistant", (made,), at, f"{own}:{step}", model, used)
        used = None
        result = _result(part) if isinstance(made, ToolCall) else None
        if result is not None:
            answers.append(Piece(f"{own}/{name}/result", "tool", (result,), at))
    yield from answers


def _part(part: Json, unmapped: Unmapped) -> Part | None:
    match part.get("type"):
        case "text":
            return Text(text) if (text := text_of(part.get("text"))) else None
        case "reasoning":
            return Thinking(text) if (text := text_of(part.get("text"))) else None
        case "tool":
            args, bad = arguments(mapping(part.get("state")).get("input"))
            return ToolCall(text_of(part.get("callID")), text_of(part.get("tool")), args, bad)
        case "file":
            return Text(shown.text) if isinstance(shown := _file(part), Text) else None
        case kind:
            if kind not in _QUIET:
                unmapped[f"part {text_of(kind)}".strip()] += 1
            return None


def _result(part: Json) -> ToolResult | None:
    """None for a call that was still running."""
    state = mapping(part.get("state"))
    call = text_of(part.get("callID"))
    if state.get("status") == "completed":
        shown = [_file(mapping(one)) for one in listing(state.get("attachments"))]
        images = tuple(one for one in shown if isinstance(one, Image))
        code = mapping(state.get("metadata")).get("exit")
        text = text_of(state.get("output"))
        failed = isinstance(code, int) and code != 0
        return ToolResult(call, "", f"{text}\nExit code: {code}" if failed else text, failed, images)
    if state.get("status") == "error":
        return ToolResult(call, "", text_of(state.get("error")), is_error=True)
    return None


def _file(part: Json) -> Part:
    name = text_of(part.get("filename")) or text_of(part.get("url"))[:200]
    if text_of(part.get("mime")).startswith("image/"):
        return image_from_url(part.get("url"), text_of(part.get("mime")))
    return Text(f"[attachment {text_of(part.get('mime'))} {name}]")


def _usage(info: Json) -> Usage | None:
    given = mapping(info.get("tokens"))
    cache = mapping(given.get("cache"))
    output = whole(given.get("output")) + whole(given.get("reasoning"))
    cost = number(info.get("cost"))
    return usage(whole(given.get("input")), output, whole(cache.get("read")), whole(cache.get("write")), cost)
