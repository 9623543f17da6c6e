"""Replaces a passage of a text, every other character kept. Pure: knows no file and no tool."""

from bisect import bisect_left
from collections.abc import Sequence

from crushpy.core.messages import Data
from crushpy.tools.errors import ToolError
from crushpy.tools.files.nearest_passage import nearest_passage
from crushpy.tools.files.reindent import reindenter
from crushpy.tools.files.text_file import Newline, TextFile, normalize

_LISTED_LINES = 10


class Replaced(Data, frozen=True):
    text: str
    count: int
    note: str = ""
    """How it was found, where it was not found as it was written."""


class _Passage(Data, frozen=True):
    """A stretch of the text as the model sees it, and what takes its place."""

    start: int
    end: int
    new: str


def replace_passage(file: TextFile, old: str, new: str, *, everywhere: bool = False) -> Replaced:
    """The file's text with `old` replaced by `new`: the only place, or all of them.

    Line endings never matter for finding; what is put in gets those of the place where it goes.
    A ToolError says why it cannot be done.
    """
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolError("old_string is empty. Use write to set the whole content of a file.")
    if old == new:
        raise ToolError("old_string and new_string are identical (line endings are kept as they are).")
    file.check(new)
    seen = normalize(file.text)
    starts = _occurrences(seen, old)
    if not starts:
        passage, note = _tolerant(seen, old, new)
        return Replaced(_put(file, seen, [passage]), 1, note)
    if len(starts) > 1 and not everywhere:
        raise ToolError(
            f"old_string is not unique: {len(starts)} places (lines {_line_numbers(seen, starts)}). "
            "Add surrounding lines to it, or set replace_all."
        )
    passages = [_Passage(start, start + len(old), new) for start in starts]
    return Replaced(_put(file, seen, passages), len(starts))


def _occurrences(text: str, old: str) -> list[int]:
    starts: list[int] = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + len(old))
    return starts


def _line_numbers(text: str, starts: list[int]) -> str:
    numbers: list[str] = []
    line, counted = 1, 0
    for start in starts[:_LISTED_LINES]:
        line += text.count("\n", counted, start)
        counted = start
        numbers.append(str(line))
    more = len(starts) - len(numbers)
    return ", ".join(numbers) + (f" and {more} more" if more else "")


# --- putting it in, with the line endings that are there ---------------------------------------------------


def _put(file: TextFile, seen: str, passages: list[_Passage]) -> str:
    """The file's text with the passages, found in `seen`, replaced."""
    text = file.text
    dropped = _dropped_returns(text, seen)
    pieces: list[str] = []
    done = 0
    for passage in passages:
        start = passage.start + bisect_left(dropped, passage.start)
        end = passage.end + bisect_left(dropped, passage.end)
        newline = _newline_at(file, start, end) if "\n" in passage.new else "\n"
        pieces += (text[done:start], passage.new.replace("\n", newline))
        done = end
    return "".join((*pieces, text[done:]))


def _dropped_returns(text: str, seen: str) -> list[int]:
    """Where in `seen` a carriage return of `text` was left out."""
    if len(text) == len(seen):
        return []
    positions: list[int] = []
    at = text.find("\r\n")
    while at >= 0:
        positions.append(at - len(positions))
        at = text.find("\r\n", at + 2)
    return positions


def _newline_at(file: TextFile, start: int, end: int) -> Newline:
    """The ending of the lines between `start` and `end`, or of the line they are in."""
    text = file.text
    inside = TextFile(text[start:end])
    if not inside.mixed_newlines and "\n" in inside.text:
        return inside.newline
    if "\n" not in inside.text and (after := text.find("\n", end)) >= 0:
        return "\r\n" if text[after - 1 : after] == "\r" else "\n"
    return file.newline


# --- the second try ----------------------------------------------------------------------------------------


def _tolerant(seen: str, old: str, new: str) -> tuple[_Passage, str]:
    """The one run of lines that equals `old` but for white space at both ends of its lines."""
    wanted = old.removesuffix("\n").split("\n")
    lines = seen.split("\n")
    found = _windows(lines, [line.strip() for line in wanted])
    if not found:
        raise ToolError(f"old_string was not found. {nearest_passage(lines, wanted)}")
    if len(found) > 1:
        numbers = ", ".join(str(at + 1) for at in found[:_LISTED_LINES])
        raise ToolError(
            f"old_string was not found as written; but for white space it is at {len(found)} places "
            f"(lines {numbers}). Copy the passage exactly, with more lines around it."
        )
    at = found[0]
    there = lines[at : at + len(wanted)]
    adjusted = reindenter(wanted, there)(new)
    if adjusted is None:
        raise ToolError(
            "old_string was not found as written: its indentation differs in a way that cannot be "
            f"carried over to new_string. {nearest_passage(lines, wanted)}"
        )
    start = sum(len(line) + 1 for line in lines[:at])
    end = start + sum(len(line) + 1 for line in there) - 1
    if old.endswith("\n") and end < len(seen):
        end += 1
    elif old.endswith("\n"):
        # The file's last line has no newline: it gets none by the way.
        adjusted = adjusted.removesuffix("\n")
    if seen[start:end] == adjusted:
        raise ToolError("Nothing would change: but for white space, old_string and new_string are the same.")
    last = at + len(wanted)
    where = f"line {last}" if last == at + 1 else f"lines {at + 1}-{last}"
    changed = " and new_string was indented to fit" if adjusted != new else ""
    return _Passage(start, end, adjusted), f"found at {where} with other white space than written{changed}"


def _windows(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where `wanted` stands in `lines`, comparing without white space at both ends."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    if not wanted[anchor]:
        return []
    found: list[int] = []
    for position, line in enumerate(lines):
        at = position - anchor
        if line.strip() != wanted[anchor] or at < 0 or at + len(wanted) > len(lines):
            continue
        if all(lines[at + index].strip() == text for index, text in enumerate(wanted)):
            found.append(at)
    return found
