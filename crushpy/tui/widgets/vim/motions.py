"""Where vim's motions lead: pure functions from text and position to a position."""

from collections.abc import Callable
from typing import NamedTuple

Motion = Callable[[str, int, int], int]
"""Text, position and count to a position."""


class Reach(NamedTuple):
    """What an operator acts on."""

    start: int
    end: int
    lines: bool = False


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Where the line's break is, or the end of the text."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def first_letter(text: str, at: int) -> int:
    start, end = line_start(text, at), line_end(text, at)
    return start + len(text[start:end]) - len(text[start:end].lstrip(" \t"))


def last_letter(text: str, at: int) -> int:
    """The last place of the line that the cursor can stand on."""
    start, end = line_start(text, at), line_end(text, at)
    return max(start, end - 1)


def left(text: str, at: int, count: int) -> int:
    return max(line_start(text, at), at - count)


def right(text: str, at: int, count: int) -> int:
    return min(line_end(text, at), at + count)


def vertical(text: str, at: int, count: int) -> int:
    """So many lines down, or up where it is negative, in the same column as far as there is one."""
    column = at - line_start(text, at)
    for _ in range(abs(count)):
        if count > 0:
            end = line_end(text, at)
            if end == len(text):
                break
            at = end + 1
        else:
            start = line_start(text, at)
            if start == 0:
                break
            at = line_start(text, start - 1)
    start = line_start(text, at)
    return min(start + column, line_end(text, start))


def line_of(text: str, number: int) -> int:
    """The first letter of the line of that number, counted from one."""
    at = 0
    for _ in range(number - 1):
        end = text.find("\n", at)
        if end < 0:
            break
        at = end + 1
    return first_letter(text, at)


def _kind(letter: str) -> int:
    return 0 if letter.isspace() else 1 if letter.isalnum() or letter == "_" else 2


def word_forward(text: str, at: int, count: int) -> int:
    for _ in range(count):
        if at >= len(text):
            break
        kind = _kind(text[at])
        while at < len(text) and kind and _kind(text[at]) == kind:
            at += 1
        while at < len(text) and not _kind(text[at]):
            at += 1
    return at


def word_back(text: str, at: int, count: int) -> int:
    for _ in range(count):
        while at > 0 and not _kind(text[at - 1]):
            at -= 1
        kind = _kind(text[at - 1]) if at else 0
        while at > 0 and _kind(text[at - 1]) == kind:
            at -= 1
    return at


def word_end(text: str, at: int, count: int) -> int:
    for _ in range(count):
        at += 1
        while at < len(text) and not _kind(text[at]):
            at += 1
        while at + 1 < len(text) and _kind(text[at + 1]) == _kind(text[at]):
            at += 1
    return max(0, min(at, len(text) - 1))


def find(text: str, at: int, count: int, how: str, letter: str) -> int | None:
    """`f`, `F`, `t` and `T`, within the line; None where there is no such letter."""
    start, end, place = line_start(text, at), line_end(text, at), at
    for number in range(count):
        if how in "ft":
            # A second `t` must get past the letter that the first one stopped at.
            found = text.find(letter, place + 1, end)
        else:
            found = text.rfind(letter, start, place)
        if found < 0:
            return None
        place = found
        del number
    return place - 1 if how == "t" else place + 1 if how == "T" else place


def word_around(text: str, at: int, *, blanks: bool) -> Reach:
    """The word under the cursor, with the blanks behind it where they are wanted."""
    start, end = line_start(text, at), line_end(text, at)
    if at >= end:
        return Reach(at, at)
    first = last = at
    kind = _kind(text[at])
    while first > start and _kind(text[first - 1]) == kind:
        first -= 1
    while last < end and _kind(text[last]) == kind:
        last += 1
    if blanks:
        behind = last
        while behind < end and text[behind] in " \t":
            behind += 1
        if behind == last:
            while first > start and text[first - 1] in " \t":
                first -= 1
        last = behind
    return Reach(first, last)


def whole_lines(text: str, one: int, other: int) -> Reach:
    """The lines from one position to another, with the break behind them."""
    one, other = sorted((one, other))
    end = line_end(text, other)
    return Reach(line_start(text, one), min(len(text), end + 1), lines=True)
