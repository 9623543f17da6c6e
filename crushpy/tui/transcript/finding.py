"""Finds words in the rows of a transcript, forwards and backwards, from wherever one is."""

from collections.abc import Iterator
from typing import NamedTuple

from crushpy.tui.items import source_text
from crushpy.tui.transcript.render.draw_item import is_foldable
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.sheet import Sheet

DRAWN = 300
"""In a transcript of more items, only those are drawn to look at them whose source has all the words."""


class Match(NamedTuple):
    """Where the words stand: index of the item, its row, the first character. Compares in reading order."""

    item: int
    row: int
    start: int


def spans_of(row: TextRow, sought: str) -> tuple[tuple[int, int], ...]:
    """Where `sought`, in lower case, stands in a row."""
    text = row.text.lower()
    if not sought or len(text) != len(row.text):  # some letters are longer in lower case
        return ()
    found: list[tuple[int, int]] = []
    at = text.find(sought, row.gutter)
    while at >= 0:
        found.append((at, at + len(sought)))
        at = text.find(sought, at + len(sought))
    return tuple(found)


def find_match(sheet: Sheet, sought: str, start: Match, step: int) -> Match | None:
    """The first match after `start`, or before it where `step` is -1; goes on at the other end."""
    beyond: Match | None = None
    for index in _around(sheet, start.item, step):
        matches = _in_item(sheet, index, sought)
        for match in matches if step > 0 else matches[::-1]:
            if index != start.item or (match > start if step > 0 else match < start):
                return match
            beyond = beyond or match
    return beyond


def _around(sheet: Sheet, index: int, step: int) -> Iterator[int]:
    """The items from `index` on, round to those before it."""
    ends = (-1, len(sheet.entries))
    at: int | None = index
    while at is not None:
        if 0 <= at < len(sheet.entries) and sheet.entries[at] is not None:
            yield at
        at = sheet.neighbour(at, step)
    at = sheet.neighbour(ends[0] if step > 0 else ends[1], step)
    while at is not None and (at < index if step > 0 else at > index):
        yield at
        at = sheet.neighbour(at, step)


def _in_item(sheet: Sheet, index: int, sought: str) -> list[Match]:
    if len(sheet.entries) > DRAWN:
        source = source_text(sheet[index].grown()).lower()
        if not all(word in source for word in sought.split()):
            return []
    folded = stands_in_fold(sheet, index, sought)
    if folded:
        sheet.unfold(index, True)
    matches = [
        Match(index, number, start)
        for number, row in enumerate(sheet.rows(index))
        for start, _ in spans_of(row, sought)
    ]
    if folded:
        sheet.unfold(index, False)
    return matches


def stands_in_fold(sheet: Sheet, index: int, sought: str) -> bool:
    """Whether an item is closed and has the words: its matches are those of its rows when it is open."""
    entry = sheet[index]
    if entry.opened or not is_foldable(entry.item):
        return False
    return sought in source_text(entry.grown()).lower()
