"""What every reader returns: sessions of another agent as pieces of messages and compactions.

A reader maps what it understands and counts everything else by kind; it never invents content.
"""

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Image, Json, Part, Role, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.util.read_json import as_object, as_text, decode_json, too_deep

DAMAGED = "damaged"
"""The count of truncated lines, invalid JSON and unreadable rows."""
MAX_DAMAGED_PLACES = 5
SUB_AGENT = "sub-agent's session"


class UnreadableSource(CrushpyError):
    """A file or database that is not in the expected format."""


class Piece(Data, frozen=True):
    """A part of a message, at the granularity of the other agent's storage."""

    id: str
    """Stable: the same each time the session is read."""
    role: Role
    parts: tuple[Part, ...]
    created_at: float = 0.0
    """0 if unknown."""
    group: str = ""
    """Pieces of a reply with one group form one message, also if results lie between them, and so do adjacent
    pieces of a prompt; a piece without a group stands alone."""
    model: str = ""
    usage: Usage | None = None
    """Of the whole message, if several pieces have one: that of the last. A piece without parts stands for a
    model call that left no message."""


class ForeignCompaction(Data, frozen=True):
    """The point at which the other agent replaced its context by a summary."""

    id: str
    summary: str
    created_at: float = 0.0
    keep_from: str = ""
    """The piece or group at which the kept messages begin; empty if none were kept."""
    tokens_before: int = 0
    tail: tuple[str, ...] = ()
    """Our own ids of the kept messages, filled in by `normalised`."""


class Heading(Data, frozen=True):
    """The session's title; the last one wins."""

    title: str


Item = Piece | ForeignCompaction | Heading


class Unmapped(Counter[str]):
    """What could not be mapped, by kind, and the places of the first damaged lines, rows and files."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def add_damaged(self, place: str) -> None:
        self[DAMAGED] += 1
        if len(self.places) < MAX_DAMAGED_PLACES:
            self.places.append(place)


class ForeignSession(Data, frozen=True):
    """One session of another agent. Each call of `read` starts from the beginning and adds what it could not
    map to the counter."""

    id: str
    file: Path
    cwd: str
    read: Callable[[Unmapped], Iterator[Item]]
    created_at: float = 0.0


class SkippedSession(Data, frozen=True):
    """A session that is not imported: a sub-agent's, unless `reason` says otherwise."""

    file: Path
    reason: str = SUB_AGENT


Found = ForeignSession | SkippedSession


class Source(Data, frozen=True):
    """One agent whose sessions can be read."""

    name: str
    """The name on the command line."""
    title: str
    """The product's name."""
    places: Callable[[Path], Sequence[Path]]
    """Where its sessions are stored on this machine, existing or not, for a working folder."""
    sessions: Callable[[Path], Iterable[Found]]
    """The sessions in a file or folder, in a stable order. Must not raise: what cannot be read becomes a
    `SkippedSession`."""


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_YEAR_2100_S = 4_102_444_800.0
"""A later time is in milliseconds, or invalid."""


# --- values from untrusted JSON: nothing here raises for a wrong type, it returns an empty value ---------


def parsed(data: bytes | str) -> Any:
    """JSON as Python values; None if it is invalid."""
    try:
        return decode_json(data)
    except ValueError:
        return None


def listing(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def parts_of(kind: type[Text | Thinking], value: Any) -> list[Part]:
    """One part of this kind, or none if its text is empty."""
    return [kind(text)] if (text := as_text(value)) else []


def texts_in(content: Any) -> str:
    """The text blocks of a message's content, joined."""
    if isinstance(content, str):
        return content
    blocks = map(as_object, listing(content))
    return "\n".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text")


def reply_parts(content: Any, unmapped: Unmapped, call: str, arguments: str) -> list[Part]:
    """The blocks of a message's content; those of type `call` hold their arguments under another key."""
    parts: list[Part] = []
    for block in map(as_object, listing(content)):
        match block.get("type"):
            case "text":
                parts += parts_of(Text, block.get("text"))
            case "thinking":
                parts += parts_of(Thinking, block.get("thinking"))
            case "image":
                parts.append(image(block.get("mimeType"), block.get("data")))
            case kind if kind == call:
                parts.append(tool_call(block.get("id"), block.get("name"), block.get(arguments)))
            case kind:
                unmapped[f"block {as_text(kind)}".strip()] += 1
    return parts


def number(value: Any) -> float:
    """A finite number, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        found = float(value)
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def whole(value: Any) -> int:
    """A count: not negative, and small enough for an integer column."""
    return int(min(max(number(value), 0.0), 2.0**52))


def seconds_of(value: Any) -> float:
    """Seconds since the epoch, from ISO text, seconds or milliseconds; 0 if invalid."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
            return max(0.0, (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            return 0.0
    seconds = number(value)
    if seconds > _YEAR_2100_S:
        seconds /= 1_000
    return seconds if 0.0 < seconds < _YEAR_2100_S else 0.0


def usage(
    given: int, output: int, cache_read: int, cache_write: int, cost: float = 0.0, hour_write: int = 0
) -> Usage | None:
    """None if all figures are zero."""
    found = Usage(given, output, cache_read, cache_write, max(0.0, cost), min(hour_write, cache_write))
    return found if found != Usage() else None


def without_message(used: Usage | None) -> Piece:
    """A model call that left no message; without usage it is ignored."""
    return Piece("", "assistant", (), usage=used)


def image(media_type: Any, data: Any) -> Part:
    """An image in a format that models accept, else a line describing the attachment."""
    kind = re.sub(r"[^\w/+.-]", "", as_text(media_type))[:80] or "of unknown type"
    if kind in _IMAGES and isinstance(data, str) and data:
        try:
            base64.b64decode(data, validate=True)
            return Image(kind, data)
        except (binascii.Error, ValueError):
            return Text(f"[image {kind}: its data cannot be read]")
    return Text(f"[attachment {kind}: not imported]")


def image_from_url(url: Any, media_type: str = "") -> Part:
    """An image in a `data:` URL, else a line with the URL."""
    address = as_text(url)
    found = re.match(r"data:([\w/+.-]{1,80});base64,", address)
    if found:
        return image(found[1], address[found.end() :])
    return Text(f"[attachment {media_type} {address[:200]}]".replace("  ", " "))


def tool_call(own: Any, name: Any, arguments: Any) -> ToolCall:
    """A call; if its arguments are not a JSON object of sensible depth, it keeps their text instead."""
    text = as_text(arguments)
    args: Any = parsed(text) if text.strip() else arguments
    if args is None or args == "":
        return ToolCall(as_text(own), as_text(name), {}, text)
    if isinstance(args, dict) and not too_deep(args):
        return ToolCall(as_text(own), as_text(name), cast(Json, args))
    return ToolCall(as_text(own), as_text(name), {}, (text or _as_text(args))[:100_000])


def tool_result(call_id: Any, parts: Iterable[Part], is_error: bool) -> ToolResult:
    """The texts and images of a result; its tool's name is filled in with the call's."""
    given = list(parts)
    text = "\n".join(part.text for part in given if isinstance(part, Text))
    images = tuple(part for part in given if isinstance(part, Image))
    return ToolResult(as_text(call_id), "", text, is_error, images)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(arguments nested too deeply)"
