"""Turns what was printed for a terminal into plain text."""

import re

_NOT_PLAIN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, clipboard
    r"|[PX^_][^\x1b\n]*(?:\x1b\\)?"  # device strings
    r"|[ -/]*[0-~]"  # everything else that is short
    r")"
)
# Each is tried once a line or once a run, not at every character of it: a line can be very long.
_LINE_END = re.compile(r"(?<!\r)\r++(?=\n|\Z)")
_OVERWRITTEN = re.compile(r"^[^\n]*\r", re.MULTILINE)
_BACKSPACED = re.compile(r"[^\n\x08]\x08")


def as_plain_text(text: str) -> str:
    """`text` as it would stand on paper: no escape sequences, and of a progress line only its last state."""
    if not _NOT_PLAIN.search(text):
        return text
    text = _ESCAPE.sub("", text)
    text = _OVERWRITTEN.sub("", _LINE_END.sub("", text))
    return _NOT_PLAIN.sub("", _BACKSPACED.sub("", text))
