"""Breaks text into lines of a given number of cells. Every break depends only on the text before it.

That is why a line that is not the last one never changes while more text arrives.
"""

import re
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes

_NARROW = re.compile(r"[ -~\u00a0-\u00ac\u00ae-\u02ff\u0370-\u0482\u2500-\u25fc\u2800-\u28ff]*")
"""Characters that take one cell each, for certain."""


class WrappedLine(NamedTuple):
    """One line of a longer text: its bounds, and what stood between it and the next one."""

    start: int
    end: int
    after: str


def is_narrow(text: str) -> bool:
    """Every character takes one cell."""
    return text.isascii() or _NARROW.fullmatch(text) is not None


def cells(text: str) -> int:
    """How many cells `text` takes. Tabs and line breaks must be gone."""
    return len(text) if text.isascii() else cell_len(text)


def wrap(text: str, width: int) -> list[WrappedLine]:
    """Lines of at most `width` cells, broken at spaces if there are any."""
    width = max(1, width)
    if is_narrow(text):
        return _wrap_narrow(text, width)
    return _wrap_wide(text, width, words=True)


def chop(text: str, width: int) -> list[WrappedLine]:
    """Lines of exactly `width` cells (the last may be shorter): for code, where spaces mean something."""
    width = max(1, width)
    if not is_narrow(text):
        return _wrap_wide(text, width, words=False)
    if len(text) <= width:
        return [WrappedLine(0, len(text), "\n")]
    cuts = [WrappedLine(at, min(at + width, len(text)), "") for at in range(0, len(text), width)]
    cuts[-1] = cuts[-1]._replace(after="\n")
    return cuts


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    if is_narrow(text):
        return text[: width - 1] + "…"
    first = _wrap_wide(text, width - 1, words=False)[0] if width > 1 else WrappedLine(0, 0, "")
    return text[: first.end] + "…"


def _wrap_narrow(text: str, width: int) -> list[WrappedLine]:
    cuts: list[WrappedLine] = []
    start, length = 0, len(text)
    while length - start > width:
        space = text.rfind(" ", start, start + width + 1)
        if space <= start:
            cuts.append(WrappedLine(start, start + width, ""))
            start += width
        else:
            cuts.append(WrappedLine(start, space, " "))
            start = space + 1
    cuts.append(WrappedLine(start, length, "\n"))
    return cuts


def _wrap_wide(text: str, width: int, *, words: bool) -> list[WrappedLine]:
    cuts: list[WrappedLine] = []
    start = used = 0
    space = used_to_space = -1
    for begin, end, size in split_graphemes(text)[0]:
        if used + size > width and begin > start:
            if words and text[begin] == " ":
                cuts.append(WrappedLine(start, begin, " "))
                start, used = end, 0
            elif words and space > start:
                cuts.append(WrappedLine(start, space, " "))
                start, used = space + 1, used - used_to_space + size
            else:
                cuts.append(WrappedLine(start, begin, ""))
                start, used = begin, size
            space = used_to_space = -1
            continue
        used += size
        if words and text[begin] == " ":
            space, used_to_space = begin, used
    cuts.append(WrappedLine(start, len(text), "\n"))
    return cuts
