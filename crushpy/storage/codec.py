"""Between our data and what a column holds: JSON text, and text without what UTF-8 cannot say."""

import msgspec

from crushpy.core.messages import Part
from crushpy.security.sanitize import encodable


def to_column(value: object) -> str:
    """`value` as JSON text."""
    return encoded(value).decode()


def encoded(value: object) -> bytes:
    """`value` as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, from a file name or a reply that is not Unicode
        return msgspec.json.encode(encodable(msgspec.to_builtins(value)))


def decoded(data: bytes | bytearray) -> str:
    return data.decode()


def encoded_parts(parts: tuple[Part, ...]) -> bytes:
    """The parts of a message as JSON."""
    return encoded(parts)


def folder_key(cwd: str) -> str:
    """A folder as rows name it, for storing and for looking up."""
    # `?` and not the mark of `encodable`: stored rows are found by it.
    return cwd.encode("utf-8", "replace").decode()
