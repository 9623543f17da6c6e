"""Values out of foreign JSON, whatever is really there: nothing here raises for a wrong type."""

import base64
import binascii
import json
import math
import re
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from crushpy.core.messages import Image, Json, Part, Text, Usage

MAX_DEPTH = 64
"""How deep the arguments of a call may nest."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_LATEST = 4_102_444_800.0
"""No session is from after the year 2100: such a time is in another unit, or nonsense."""


def parsed(data: bytes | str) -> Any:
    """JSON as Python values; None where it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data)  # takes lone surrogates, which our own storage can mark
    except (ValueError, RecursionError):
        return None


def mapping(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def number(value: Any) -> float:
    """A number of any kind; 0 for what is none, infinite or absurd."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        found = float(value)
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def whole(value: Any) -> int:
    """A count: not negative, and of a size that a column holds."""
    return int(min(max(number(value), 0.0), 2.0**52))


def seconds_of(value: Any) -> float:
    """Seconds since the epoch, from ISO text, seconds or milliseconds; 0 where nothing sensible is said."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
            return max(0.0, (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            return 0.0
    seconds = number(value)
    if seconds > _LATEST:
        seconds /= 1_000
    return seconds if 0.0 < seconds < _LATEST else 0.0


def usage(given: int, output: int, cache_read: int, cache_write: int, cost: float = 0.0) -> Usage | None:
    """None where nothing was counted."""
    found = Usage(given, output, cache_read, cache_write, max(0.0, cost))
    return found if found != Usage() else None


def image(media_type: Any, data: Any) -> Part:
    """An image as a model takes it; else a line that says what was there."""
    kind = re.sub(r"[^\w/+.-]", "", text_of(media_type))[:80] or "of unknown type"
    if kind in _IMAGES and isinstance(data, str) and data:
        try:
            base64.b64decode(data, validate=True)
            return Image(kind, data)
        except (binascii.Error, ValueError):
            return Text(f"[image {kind}: its data cannot be read]")
    return Text(f"[attachment {kind}: not imported]")


def image_from_url(url: Any, media_type: str = "") -> Part:
    """An image in a `data:` address; else a line with the address."""
    address = text_of(url)
    found = re.match(r"data:([\w/+.-]{1,80});base64,", address)
    if found:
        return image(found[1], address[found.end() :])
    return Text(f"[attachment {media_type} {address[:200]}]".replace("  ", " "))


def arguments(value: Any) -> tuple[Json, str]:
    """A call's arguments; where they are no JSON object of sensible depth, the text as it came instead."""
    text = value if isinstance(value, str) else ""
    found: Any = parsed(value) if isinstance(value, str) and value.strip() else value
    if found is None or found == "":
        return {}, text
    if isinstance(found, dict) and not _too_deep(found):
        return cast(Json, found), ""
    return {}, (text or _plain(found))[:100_000]


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = [child for one in level if isinstance(one, dict | list) for child in _children(one)]
        if not inner:
            return False
        level = inner
    return True


def _children(value: Any) -> list[Any]:
    return list(cast(Json, value).values()) if isinstance(value, dict) else cast("list[Any]", value)


def _plain(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(arguments that nest too deeply)"


def major(version: Any) -> int:
    """The first number of a version such as 2.1.12; 0 where there is none."""
    found = re.match(r"v?(\d{1,9})", text_of(version) or str(whole(version)))
    return int(found[1]) if found else 0


def newer_version(program: str, version: Any, known: int) -> str:
    """A note where a larger version than the known one wrote it."""
    if major(version) <= known:
        return ""
    shown = re.sub(r"[^\w.+-]", "", str(version))[:40]
    return f"written by {program} {shown}, newer than version {known}: what is understood is imported"
