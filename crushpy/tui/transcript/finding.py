"""Finds words in the rows of a transcript, forwards and backwards, from wherever one is."""

import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from crushpy.tui.items import source_text
from crushpy.tui.transcript.item_state import ItemState
from crushpy.tui.transcript.render.draw_item import is_foldable
from crushpy.tui.transcript.render.reply_part import ReplyPart
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.transcript_model import TranscriptModel

DRAWN = 300
"""In a transcript of more entries, only those are drawn to look at them whose source has all the words."""


_MARKS = re.compile(r"[*_~`\\\[\]]|^[ \t>]+", re.MULTILINE)
"""What markdown has between words that stand side by side when it is drawn."""


class Match(NamedTuple):
    """Where the words stand: index of the item, its row, the first character. Compares in reading order."""

    item: int
    row: int
    start: int


Search = Generator[None, None, Match | None]


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


def find_match(sheet: TranscriptModel, sought: str, start: Match, step: int) -> Search:
    """The first match after `start`, or before it where `step` is -1; goes on at the other end. Step by step:
    in megabytes it takes a while."""
    beyond: Match | None = None
    for index in _around(sheet, start.item, step):
        yield
        matches = _in_item(sheet, index, sought)
        for match in matches if step > 0 else matches[::-1]:
            if index != start.item or (match > start if step > 0 else match < start):
                return match
            beyond = beyond or match
    return beyond


def _around(sheet: TranscriptModel, index: int, step: int) -> Iterator[int]:
    """The items from `index` on, round to those before it; also those that a closed run hides."""
    size = len(sheet.entries)
    for further in range(size):
        at = (index + step * further) % size
        entry = sheet.entries[at]
        if entry is not None and (not entry.hidden or entry.run is not None):
            yield at


def _in_item(sheet: TranscriptModel, index: int, sought: str) -> list[Match]:
    if not _may_have(sheet, index, sought):
        return []
    run = hiding_run(sheet, index)
    if run is not None:
        sheet.unfold(run, True)
    folded = stands_in_fold(sheet, index, sought)
    if folded:
        sheet.unfold(index, True)
    matches = [
        Match(index, number, start)
        for number, row in enumerate(sheet.all_rows(index))
        for start, _ in spans_of(row, sought)
    ]
    if folded:
        sheet.unfold(index, False)
    if run is not None:
        sheet.unfold(run, False)
    return matches


def hiding_run(sheet: TranscriptModel, index: int) -> int | None:
    """The line of the closed run that hides an entry; None where it is seen."""
    entry = sheet[index]
    return entry.run if entry.hidden else None


def _may_have(sheet: TranscriptModel, index: int, sought: str) -> bool:
    """Whether an entry has to be drawn to know. All are where there are few."""
    entry = sheet[index]
    if isinstance(entry.item, ReplyPart):
        return part_may_have(entry, sought)
    if len(sheet.entries) <= DRAWN and not entry.hidden:
        return True
    source = source_text(entry.grown()).lower()
    return all(word in source for word in sought.split())


def part_may_have(entry: ItemState, sought: str) -> bool:
    """Whether `sought` may stand in a part of a long reply, as its source tells."""
    source, words = source_text(entry.grown()).lower(), sought.lower().split()
    if not all(word in source for word in words):
        return False
    # Nearly every part has some words; as they are sought, only few have them.
    return len(words) < 2 or " ".join(words) in " ".join(_MARKS.sub("", source).split())


def stands_in_fold(sheet: TranscriptModel, index: int, sought: str) -> bool:
    """Whether an item is closed and has the words: its matches are those of its rows when it is open."""
    entry = sheet[index]
    if entry.opened or not is_foldable(entry.item):
        return False
    return sought in source_text(entry.grown()).lower()
