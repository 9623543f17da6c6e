"""Reads JSON of unknown shape: values of an unexpected type count as missing. Pure."""

from typing import Any, cast

import msgspec

from crushpy.core.messages import Json


def as_object(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Json]:
    """The objects of a list."""
    if not isinstance(value, list):
        return []
    return [cast(Json, item) for item in cast("list[object]", value) if isinstance(item, dict)]


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_index(value: object) -> int:
    """An index of a list; -1 if it is not an integer."""
    return value if isinstance(value, int) else -1


MAX_COUNT = 2**53
"""Larger numbers are a server's mistake, and do not fit a database column."""


def first_count(source: Json, *names: str) -> int:
    """The first positive and plausible number under `names`; 0 if there is none."""
    for name in names:
        value = source.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MAX_COUNT:
            return int(value)
    return 0


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def decode_json(data: bytes | str) -> Any:
    """Decode JSON. Raises ValueError if it is invalid or nested too deeply."""
    try:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeEncodeError):
            # msgspec refuses half of a surrogate pair, and servers split their replies anywhere.
            import json

            from crushpy.security.sanitize import encodable

            return encodable(json.loads(data))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def too_deep(value: Any, most: int = 100) -> bool:
    """Whether lists and objects are nested too deeply to be stored; real values are not."""
    level: list[Any] = [value]
    for _ in range(most):
        inner: list[Any] = []
        for outer in level:
            inner += as_object(outer).values() if isinstance(outer, dict) else ()
            inner += cast("list[Any]", outer) if isinstance(outer, list) else ()
        level = inner
    return bool(level)
