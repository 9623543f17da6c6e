"""Selected text: how a place in the transcript is named, and what a selection copies.

A line's name does not depend on the lines above it, so a selection stays where it is while they change.
"""

from collections.abc import Sequence

from textual.geometry import Offset
from textual.selection import Selection

from crushpy.security.sanitize import clean
from crushpy.tui.items import source_text
from crushpy.tui.transcript.finding import part_may_have
from crushpy.tui.transcript.render.reply_part import ReplyPart
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.transcript_model import TranscriptModel

ROWS = 1 << 22
"""More rows than any item has."""
MANY = 200
"""Of a selection over more entries, those wholly inside give their source: drawing them takes too long."""
MANY_PARTS = 16
"""The same for parts of a long reply, which are large."""


def name_line(key: int, row: int) -> int:
    """The name of a row of an item: larger for what stands below. The empty row before an item is row -1."""
    return key * ROWS + row + 1


def named_line(name: int) -> tuple[int, int]:
    """Key and row of a line's name."""
    return name // ROWS, name % ROWS - 1


def selected_text(sheet: TranscriptModel, selection: Selection) -> str:
    """The plain text of a selection: no gutters, no padding; lines broken to fit are whole again."""
    if not sheet.entries:
        return ""
    first = 0 if selection.start is None else _clamped(sheet, named_line(selection.start.y)[0])
    last = (
        len(sheet.entries) - 1 if selection.end is None else _clamped(sheet, named_line(selection.end.y)[0])
    )
    parts: list[str] = []
    for index in range(first, last + 1):
        entry = sheet.entries[index]
        if entry is None:
            continue
        if parts and sheet.space(index):
            parts.append("\n")
        most = MANY_PARTS if isinstance(entry.item, ReplyPart) else MANY
        if last - first > most and first < index < last:
            source = clean(source_text(entry.grown()))
            broken = isinstance(entry.item, ReplyPart) and entry.item.broken
            parts.append(source if broken else source.rstrip("\n") + "\n")
            continue
        for number, row in enumerate(sheet.all_rows(index)):
            span = selection.get_span(name_line(entry.key, number))
            if span is not None:
                parts.append(_copied(row, *span))
    return "".join(parts).strip("\n")


def word_at(sheet: TranscriptModel, name: int, x: int) -> Selection | None:
    """The word at a character of a line."""
    key, number = named_line(name)
    index = sheet.index_of(key)
    if index is None or number < 0:
        return None
    row = sheet.rows(index)[number]
    text = row.text
    if not row.gutter <= x < len(text) or text[x].isspace():
        return None
    start = end = x
    while start > row.gutter and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return Selection(Offset(start, name), Offset(end, name))


def whole_item(sheet: TranscriptModel, key: int) -> Selection | None:
    """All of an item."""
    index = sheet.index_of(key)
    if index is None:
        return None
    first, last = sheet.extent(index)
    rows = sheet.all_rows(last)
    if not rows:
        return None
    start = Offset(0, name_line(sheet[first].key, 0))
    return Selection(start, Offset(len(rows[-1].text), name_line(sheet[last].key, len(rows) - 1)))


def words_in(sheet: TranscriptModel, key: int, words: Sequence[str]) -> Selection | None:
    """The first of these words in an item; where a row breaks none of them, all of the item."""
    index = sheet.index_of(key)
    folded = [word.casefold() for word in words if word]
    for entry in sheet.parts(index) if index is not None else ():
        if isinstance(entry.item, ReplyPart) and not any(part_may_have(entry, word) for word in folded):
            continue
        found = _words_in_rows(sheet.all_rows(sheet.place_of(entry.key)), entry.key, folded)
        if found is not None:
            return found
    return whole_item(sheet, key)


def _words_in_rows(rows: Sequence[TextRow], key: int, words: Sequence[str]) -> Selection | None:
    for number, row in enumerate(rows):
        text = row.text.casefold()
        for word in words:
            start = text.find(word, row.gutter)
            if start >= 0 and len(text) == len(row.text):
                name = name_line(key, number)
                return Selection(Offset(start, name), Offset(start + len(word), name))
    return None


def span_in(row: TextRow, selection: Selection, name: int) -> tuple[int, int] | None:
    """Which characters of a row are selected; None where there are none."""
    span = selection.get_span(name)
    if span is None:
        return None
    start, end = span
    text = row.text.rstrip()
    start = max(start, row.gutter)
    end = len(text) if end < 0 else min(end, len(text))
    return (start, end) if start < end else None


def _copied(row: TextRow, start: int, end: int) -> str:
    text = row.text
    piece = text[max(start, row.gutter) : len(text) if end < 0 else end].rstrip(
        " " if row.end == "\n" else ""
    )
    return piece + (row.end if end < 0 else "\n")


def _clamped(sheet: TranscriptModel, key: int) -> int:
    """The index of a key; of the nearest one where it is gone."""
    return max(0, min(len(sheet.entries) - 1, sheet.place_of(key)))
