"""Checks that a here-document begins and ends where bash would say, and hides no substitution.

The parser leaves part of the body out of its tree and knows no backticks in it, so the source decides.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_SUBSTITUTION = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$[({\[])")
_DELIMITER = re.compile(
    rb"(?P<bare>[\w.-]+)|'(?P<single>[\w. -]+)'|\"(?P<double>[\w. -]+)\"|\\(?P<escaped>[\w.-]+)"
)


def check_heredoc(node: "Node", source: bytes) -> str:
    """Why this here-document cannot be read, or nothing."""
    parts = {child.type: child for child in node.children}
    start, body, end = (parts.get(kind) for kind in ("heredoc_start", "heredoc_body", "heredoc_end"))
    if start is None or end is None:
        return "a here-document in it has no end"
    delimiter = _DELIMITER.fullmatch(source[start.start_byte : start.end_byte])
    if delimiter is None:
        return "the end mark of a here-document cannot be read"
    mark = next(each for each in delimiter.groups() if each is not None)
    tabs = "<<-" in parts

    first = source.find(b"\n", start.end_byte) + 1
    last = source.rfind(b"\n", 0, end.start_byte) + 1
    lines = source[first:].split(b"\n")
    before = source[first:last].count(b"\n")
    closes = [(line.lstrip(b"\t") if tabs else line) == mark for line in lines]
    if not first or first > last or True not in closes or closes.index(True) != before:
        return "a here-document in it ends elsewhere than it seems"
    if body is not None and body.start_byte < first:
        return "a here-document in it begins elsewhere than it seems"
    if delimiter["bare"] is None:
        return ""

    text = bytearray(source[first:last])
    for child in body.children if body is not None else ():
        if child.type in ("command_substitution", "simple_expansion", "expansion", "arithmetic_expansion"):
            begin, stop = child.start_byte - first, child.end_byte - first
            text[begin:stop] = b" " * (stop - begin)
    if _SUBSTITUTION.search(bytes(text)):
        return "a here-document in it hides a substitution"
    return ""
