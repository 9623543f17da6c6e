"""Between our data and what a column holds: JSON text, and text without what UTF-8 cannot say."""

from typing import Any, cast

import msgspec


def to_column(value: object) -> str:
    """`value` as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, from a file name or a reply that is not Unicode
        return msgspec.json.encode(_storable(msgspec.to_builtins(value))).decode()


def storable(text: str) -> str:
    """`text` with `?` for each lone surrogate: a database holds Unicode only."""
    return text.encode("utf-8", "replace").decode()


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in cast("list[Any]", value)]
    return value
