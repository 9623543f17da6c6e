"""Places in the text of a transcript: selections and what they copy, matches of a search.

A line is named by its item's key and its row. The name does not depend on the lines above, so a selection
stays in place while they change.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from textual.geometry import Offset
from textual.selection import Selection

from crushpy.security.sanitize import clean
from crushpy.tui.items import source_text
from crushpy.tui.transcript.render.canvas import TextRow
from crushpy.tui.transcript.render.draw_item import is_foldable
from crushpy.tui.transcript.render_cache import RenderCache

MAX_ROWS_OF_ITEM = 1 << 22
"""More rows than any item has."""
MAX_DRAWN_SELECTION = 200
"""In a selection of more items, those wholly inside give their source: drawing them takes too long."""
MAX_DRAWN_SEARCH = 300
"""In a transcript of more items, only those whose source has all the words are drawn to search them."""
LARGE_SOURCE_CHARS = 20_000
"""An item with a longer source is searched and selected like one of very many."""
ROWS_PER_STEP = 1_000
"""Rows that are searched in one step."""

_WORD = re.compile(r"\S+")

# --- selections ------------------------------------------------------------------------------------------


def name_line(key: int, row: int) -> int:
    """The name of an item's row; larger for a row further down. The empty row before an item is row -1."""
    return key * MAX_ROWS_OF_ITEM + row + 1


def parse_line_name(name: int) -> tuple[int, int]:
    """The key and row of a line's name."""
    return name // MAX_ROWS_OF_ITEM, name % MAX_ROWS_OF_ITEM - 1


def selected_text(cache: RenderCache, selection: Selection) -> str:
    """The plain text of a selection: no gutters, no padding; wrapped lines are joined again."""
    model = cache.model
    if not model.entries:
        return ""
    start, end = selection.start, selection.end
    first = 0 if start is None else model.nearest_index(parse_line_name(start.y)[0])
    last = len(model.entries) - 1 if end is None else model.nearest_index(parse_line_name(end.y)[0])
    parts: list[str] = []
    for index in range(first, last + 1):
        entry = model.entries[index]
        if entry.removed:
            continue
        if parts and model.space(index):
            parts.append("\n")
        inside = (start is None or index > first) and (end is None or index < last)
        source = source_text(entry.current_item()) if inside else ""
        large = len(source) > LARGE_SOURCE_CHARS and not cache.is_complete(index)
        if inside and (last - first > MAX_DRAWN_SELECTION or large):
            parts.append(clean(source).rstrip("\n") + "\n")
            continue
        for number, row in enumerate(cache.all_rows(index)):
            span = selection.get_span(name_line(entry.key, number))
            if span is not None:
                start_at, end_at = span
                text = row.text[max(start_at, row.gutter) : len(row.text) if end_at < 0 else end_at]
                text = text.rstrip(" " if row.end == "\n" else "")
                parts.append(text + (row.end if end_at < 0 else "\n"))
    return "".join(parts).strip("\n")


def word_at(cache: RenderCache, name: int, x: int) -> Selection | None:
    """The word at a character of a line."""
    key, number = parse_line_name(name)
    index = cache.model.index_of(key)
    if index is None or number < 0:
        return None
    row = cache.rows(index)[number]
    words = (word.span() for word in _WORD.finditer(row.text, row.gutter))
    found = next(((start, end) for start, end in words if start <= x < end), None)
    return Selection(Offset(found[0], name), Offset(found[1], name)) if found else None


def whole_item(key: int) -> Selection:
    """All of an item, also rows that are not drawn yet."""
    return Selection(Offset(0, name_line(key, 0)), Offset(0, name_line(key, MAX_ROWS_OF_ITEM - 2)))


def selected_span(row: TextRow, selection: Selection, name: int) -> tuple[int, int] | None:
    """Which characters of a row are selected; None if there are none."""
    span = selection.get_span(name)
    if span is None:
        return None
    start, end = span
    text = row.text.rstrip()
    start = max(start, row.gutter)
    end = len(text) if end < 0 else min(end, len(text))
    return (start, end) if start < end else None


# --- search ----------------------------------------------------------------------------------------------


class Match(NamedTuple):
    """A match: the index of the item, its row, the first character. Compares in reading order."""

    item: int
    row: int
    start: int
    length: int = 0


Search = Generator[None, None, Match | None]
"""A search in steps, between which keys are handled: in megabytes it takes a while."""


def match_spans(row: TextRow, sought: str) -> tuple[tuple[int, int], ...]:
    """The spans of `sought`, in lower case, in a row."""
    text = row.text.lower()
    if not sought or len(text) != len(row.text):  # some letters are longer in lower case
        return ()
    return tuple(found.span() for found in re.compile(re.escape(sought)).finditer(text, row.gutter))


def find_match(cache: RenderCache, sought: str, start: Match, step: int) -> Search:
    """The first match after `start`, or before it if `step` is -1; continues at the other end."""
    beyond: Match | None = None
    for index in _indices_from(cache, start.item, step):
        yield
        matches = yield from _matches_in_item(cache, index, sought)
        for match in matches if step > 0 else matches[::-1]:
            if index != start.item or (match > start if step > 0 else match < start):
                return match
            beyond = beyond or match
    return beyond


def find_first_word(cache: RenderCache, index: int, words: Sequence[str]) -> Search:
    """The first place in an item that has one of the words."""
    found: list[Match] = []
    for word in words:
        found += yield from _matches_in_item(cache, index, word.lower())
    return min(found, default=None)


def _indices_from(cache: RenderCache, index: int, step: int) -> Iterator[int]:
    """All items from `index` on, wrapping round; also those in a collapsed run."""
    entries = cache.model.entries
    for further in range(len(entries)):
        at = (index + step * further) % len(entries)
        if not entries[at].hidden or entries[at].run is not None:
            yield at


def _matches_in_item(cache: RenderCache, index: int, sought: str) -> Generator[None, None, list[Match]]:
    if not _may_match(cache, index, sought):
        return []
    folded = has_folded_match(cache, index, sought)
    if folded or collapsed_run(cache, index) is not None:
        rows = yield from cache.draw_unseen(index, opened=folded or cache.model[index].opened)
    else:
        yield from cache.draw_all(index)
        rows = cache.rows(index)
    matches: list[Match] = []
    for number, row in enumerate(rows):
        matches += [Match(index, number, start, end - start) for start, end in match_spans(row, sought)]
        if number % ROWS_PER_STEP == ROWS_PER_STEP - 1:
            yield
    return matches


def collapsed_run(cache: RenderCache, index: int) -> int | None:
    """The header of the collapsed run that hides an entry; None if it is visible."""
    entry = cache.model[index]
    return entry.run if entry.hidden else None


def _may_match(cache: RenderCache, index: int, sought: str) -> bool:
    """Whether an entry must be drawn to know. All are if there are few and they are small."""
    entry = cache.model[index]
    source = source_text(entry.current_item())
    few = len(cache.model.entries) <= MAX_DRAWN_SEARCH and len(source) <= LARGE_SOURCE_CHARS
    if few and not entry.hidden:
        return True
    source = source.lower()
    return all(word in source for word in sought.split())


def has_folded_match(cache: RenderCache, index: int, sought: str) -> bool:
    """Whether an item is closed and has the words: its matches are those of its rows when it is open."""
    entry = cache.model[index]
    if entry.opened or not is_foldable(entry.item):
        return False
    return sought in source_text(entry.current_item()).lower()
