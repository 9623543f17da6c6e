"""The one sanitiser: makes untrusted text safe before a terminal shows it.

Text from a model, a tool or a file may hold escape sequences that write to the clipboard, rename the window
or move the cursor, and invisible characters that make it read otherwise than it is.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

# Ends at the first control character, so that scanning is linear and only the sequence is removed.
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x00-\x08\x0a-\x1f\x7f-\x9f]*+(?:\x07|\x1b\\|\x9c)"
_CSI = r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"
_SHORT = r"\x1b[ -/]*+[0-~]"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_HIDDEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that reorder text, have no width, or look like a space."""
_INVISIBLE = f"[{_HIDDEN}]"
_SURROGATE = r"[\ud800-\udfff]"
_VISIBLE = rf"[^\x00-\x9f\ud800-\udfff{_HIDDEN}]"
_JOINER = rf"(?<={_VISIBLE})[\u200c\u200d](?={_VISIBLE})"
"""Joins emoji, and letters of some scripts: kept if it can."""

_SUSPECT = f"{_CONTROL}|{_INVISIBLE}|{_SURROGATE}"
_UNSAFE = (
    rf"(?P<line>\r\n?)|(?P<gone>{_STRING}|{_CSI}|{_SHORT}|{_CONTROL})"
    rf"|(?P<kept>{_JOINER})|(?P<unseen>{_INVISIBLE})|{_SURROGATE}"
)

_SPACES = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""Looks like a space, but a shell treats it as a letter."""
_ODD = r"\ufe0e\ufe0f\ufff0-\ufff8\U00013430-\U00013455\U0001bca0-\U0001bca3"
"""Invisible, and kept unless a decision depends on the text."""
_SCRIPT = rf"[^\x00-\u058f\u2e80-\uf8ff{_HIDDEN}{_SPACES}{_ODD}]"
"""Emoji, and scripts that use joiners: not Latin, Greek, Cyrillic or Chinese."""
_USED_JOINER = (
    rf"(?<={_SCRIPT})[\ufe0e\ufe0f]|(?<={_SCRIPT}|\ufe0f)[\u200c\u200d](?={_SCRIPT})"
    r"|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)
_REVEAL = rf"(?P<kept>{_USED_JOINER})|[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}{_SPACES}{_ODD}]|{_SURROGATE}"
_C0 = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)
_NAMES = dict(enumerate(_C0.split())) | {0x7F: "DEL"}


def clean(text: str) -> str:
    """`text` without escape sequences and control characters, and with invisible ones shown as `<U+202E>`.

    Line breaks and tabs stay; a lone carriage return becomes a line break. The result can be encoded.
    """
    if text.isascii():
        if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
            return text
    elif re.search(_SUSPECT, text) is None:
        return text
    return re.sub(_UNSAFE, _replace_match, text)


def reveal(text: str) -> str:
    """`text` with everything visible, for decisions: hidden characters become `<ESC>` or `<U+202E>`.

    Nothing is dropped. Line breaks and tabs stay; a carriage return is shown, also at the end of a line.
    """
    return "".join([piece for piece, _ in reveal_pieces(text)])


def reveal_pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of `reveal`; True for each that represents a hidden character."""
    start = 0
    for match in () if text.isascii() and text.isprintable() else re.finditer(_REVEAL, text):
        if match["kept"]:
            continue
        if match.start() > start:
            yield text[start : match.start()], False
        code = ord(match[0])
        yield f"<{_NAMES[code]}>" if code in _NAMES else f"<U+{code:04X}>", True
        start = match.end()
    if start < len(text):
        yield text[start:], False


def safe_json(data: bytes) -> bytes:
    """JSON in UTF-8 with DEL and the C1 controls, which some terminals obey, as escapes."""
    return re.sub(rb"\xc2([\x80-\x9f])|\x7f", lambda found: b"\\u00%02x" % found[0][-1], data)


def one_line(text: str) -> str:
    """`text`, clean and on a single line."""
    return " ".join(clean(text).split())


def encodable(value: T) -> T:
    """`value`, text or JSON data, with a mark for each lone surrogate, which UTF-8 cannot encode."""
    return map_texts(value, _encodable)


def _encodable(text: str) -> str:
    # Via UTF-16, so that the two surrogates of one character are joined.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def to_json(value: object) -> bytes:
    """JSON in UTF-8. What is not valid Unicode is replaced, as by `encodable`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(value)))


def map_texts(value: T, change: Callable[[str], str]) -> T:
    """A text, or JSON data with every text in it, names included, as `change` returns it."""
    if isinstance(value, str):
        return cast(T, change(value))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return cast(T, {map_texts(key, change): map_texts(item, change) for key, item in items})
    if isinstance(value, list | tuple):
        return cast(T, [map_texts(item, change) for item in cast("list[Any]", value)])
    return value


def _replace_match(match: "re.Match[str]") -> str:
    if match["unseen"]:
        return f"<U+{ord(match[0]):04X}>"
    fixed = {"line": "\n", "gone": "", "kept": match[0]}
    return fixed.get(match.lastgroup or "", "\N{REPLACEMENT CHARACTER}")
