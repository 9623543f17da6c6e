"""The items of a transcript: their order, which of them are open or hidden, and how tall each of them is.

Draws nothing: an item's height is an estimate until `RenderCache` has drawn it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

import msgspec

from crushpy.tui.items import NoticeItem, ReadingItem, ReplyItem, ThinkingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.render.draw_item import estimate, stands_close
from crushpy.tui.transcript.render.tool_calls import opens_by_itself

MAX_OUTPUT_CHARS = 200_000
"""Characters of a running tool's output that are kept for display."""
MAX_COLLAPSED_READS = 50
"""Calls that one line represents: whenever one of them changes, all are counted again."""
GONE = NoticeItem("")
"""In the place of an item that was removed."""
_READING = {"view": "files", "ls": "folders", "glob": "searches", "grep": "searches"}


class Heights:
    """Heights by index. Positions are prefix sums, computed when asked for and only from the first height
    that changed: while a reply is streamed that is the last one."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tops = [0]
        """The rows where the first entries begin; shorter than the heights after a change."""

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def __setitem__(self, index: int, height: int) -> None:
        if height != self._heights[index]:
            self._heights[index] = height
            del self._tops[index + 1 :]

    def append(self, height: int) -> None:
        self._heights.append(height)

    @property
    def total(self) -> int:
        return self.before(len(self._heights))

    def before(self, index: int) -> int:
        """The sum of the heights before `index`: the row where it begins."""
        known = len(self._tops) - 1
        if index > known:
            self._tops.extend(islice(accumulate(self._heights[known:index], initial=self._tops[-1]), 1, None))
        return self._tops[index]

    def find(self, row: int) -> tuple[int, int]:
        """Which index covers `row`, and how far below its beginning that is. Past the end: the last row."""
        row = max(0, min(row, self.total - 1))
        index = max(0, min(bisect_right(self._tops, row), len(self._heights)) - 1)
        return index, row - self._tops[index]


class ItemState:
    """One item in its place."""

    __slots__ = ("depth", "focused", "hidden", "item", "key", "run", "streamed", "unfolded")

    def __init__(self, key: int, item: TranscriptItem, depth: int = 0) -> None:
        self.key = key
        self.item = item
        self.depth = depth
        """How many branches deep it is."""
        self.focused = False
        """Keys act on it."""
        self.hidden = False
        """Not shown: removed, part of a collapsed run, or the header of a run too short to need one."""
        self.run: int | None = None
        """Index of the header of the run of reading calls it belongs to; None if it belongs to none."""
        self.unfolded: bool | None = None
        """What the user chose; None if nothing was chosen."""
        self.streamed: list[str] | None = None
        """What was streamed since `item` was set; None if the item does not grow."""

    @property
    def removed(self) -> bool:
        return self.item is GONE

    @property
    def opened(self) -> bool:
        return opens_by_itself(self.item) if self.unfolded is None else self.unfolded

    def set_item(self, item: TranscriptItem) -> None:
        """Shows `item`, which does not grow, from now on."""
        self.item, self.streamed = item, None

    def current_item(self) -> TranscriptItem:
        """The item with everything that was streamed so far."""
        if not self.streamed:
            return self.item
        self.streamed[:] = ["".join(self.streamed)]
        match self.item:
            case ReplyItem() | ThinkingItem():
                return msgspec.structs.replace(self.item, text=self.item.text + self.streamed[0])
            case ToolItem():
                output = (self.item.output + self.streamed[0])[-MAX_OUTPUT_CHARS:]
                return msgspec.structs.replace(self.item, output=output)
            case _:
                return self.item


class TranscriptModel:
    """Items by index. Keys are never used twice; a removed item leaves a gap of height 0."""

    def __init__(self) -> None:
        self.entries: list[ItemState] = []
        self.heights = Heights()
        self.width = 0
        """Columns for which heights are estimated."""
        self.depth = 0
        """Of items that are added."""
        self._first_key = 0

    def __getitem__(self, index: int) -> ItemState:
        return self.entries[index]

    # --- changes -----------------------------------------------------------------------------------------

    def reset(self, items: Sequence[TranscriptItem]) -> None:
        self._first_key += len(self.entries)
        self.entries, self.depth = [], 0
        for item in items:
            self._append(item)
        for index, entry in enumerate(self.entries):
            if isinstance(entry.item, ReadingItem):
                self._collapse(index)
        self.estimate_all()

    def add(self, item: TranscriptItem) -> int:
        """Appends an item; returns its key."""
        start = len(self.entries)
        key = self._append(item)
        for index in range(start, len(self.entries)):
            self.heights.append(0)
            self.estimate(index)
        return key

    def _append(self, item: TranscriptItem) -> int:
        """Adds an entry, and before the first of several reading calls the header of their run."""
        run = self._last_run() if is_reading(item) else None
        if run is None and is_reading(item):
            run = len(self.entries)
            header = self._append_entry(ReadingItem())
            header.hidden = True
            header.run = run
        entry = self._append_entry(item)
        entry.run = run
        return entry.key

    def _append_entry(self, item: TranscriptItem) -> ItemState:
        entry = ItemState(self._first_key + len(self.entries), item, self.depth)
        self.entries.append(entry)
        return entry

    def remove(self, index: int) -> None:
        for later in range(index + 1, len(self.entries)):  # the rest of its run is not collapsed any more
            entry = self.entries[later]
            if entry.run is None or entry.run > index:
                break
            entry.run = None
        gone = self.entries[index]
        gone.set_item(GONE)
        gone.hidden, gone.run = True, None
        self.heights[index] = 0

    # --- collapsed reads ---------------------------------------------------------------------------------

    def update_run(self, header: int) -> bool:
        """Counts the calls of a run and hides those its header represents; True if the header changed."""
        before = self[header].item
        for index in self._collapse(header):
            self.estimate(index)
        after = self.neighbour(header, 1)
        if after is not None:
            self.estimate(after)
        return self[header].item != before

    def _last_run(self) -> int | None:
        """Index of the header of the run that a reading call added now belongs to."""
        last = self.entries[-1] if self.entries else None
        if last is None or last.run is None or last.depth != self.depth:
            return None
        return last.run if len(self.entries) - last.run <= MAX_COLLAPSED_READS else None

    def _collapse(self, header: int) -> list[int]:
        """Updates the header of a run; returns the entries that are shown now and were not, or vice versa."""
        line = self[header]
        members = list(self._members(header))
        told = {index for index, entry in members if _is_collapsible(entry.item)}
        together = len(told) > 1
        changed: list[int] = []
        for index, entry in ((header, line), *members):
            hidden = not together if entry is line else together and index in told and not line.opened
            if entry.hidden != hidden:
                entry.hidden = hidden
                changed.append(index)
        line.item = _count_reads(entry.item for index, entry in members if index in told)
        return changed

    def _members(self, header: int) -> Iterator[tuple[int, ItemState]]:
        for index in range(header + 1, len(self.entries)):
            entry = self.entries[index]
            if not is_reading(entry.item):
                return
            yield index, entry

    # --- queries -----------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The height of all items."""
        return self.heights.total

    def index_of(self, key: int) -> int | None:
        """The index of the entry with that key; None if it was removed."""
        index = key - self._first_key
        return index if 0 <= index < len(self.entries) and not self.entries[index].removed else None

    def nearest_index(self, key: int) -> int:
        """The index of a key, even if its entry was removed."""
        return max(0, min(len(self.entries) - 1, key - self._first_key))

    def neighbour(self, index: int, step: int) -> int | None:
        """The next visible entry in that direction (1 or -1)."""
        index += step
        while 0 <= index < len(self.entries):
            if not self.entries[index].hidden:
                return index
            index += step
        return None

    def space(self, index: int) -> int:
        """Empty rows before an entry: 1 or 0."""
        entry = self.entries[index]
        if entry.hidden:
            return 0
        before = self.neighbour(index, -1)
        return 0 if stands_close(entry.item, None if before is None else self[before].item) else 1

    # --- heights -----------------------------------------------------------------------------------------

    def estimate(self, index: int) -> None:
        """Sets the height of an entry that is not drawn."""
        self.heights[index] = self._estimate(index)

    def estimate_all(self) -> None:
        self.heights = Heights(map(self._estimate, range(len(self.entries))))

    def _estimate(self, index: int) -> int:
        entry = self.entries[index]
        if entry.hidden:
            return 0
        return self.space(index) + estimate(entry.item, self.width, opened=entry.opened)


def is_reading(item: TranscriptItem) -> bool:
    """Whether it is a call of a tool that only looks at files."""
    return isinstance(item, ToolItem) and item.name in _READING


def _is_collapsible(item: TranscriptItem) -> bool:
    """Whether a reading call succeeded, so that nothing about it needs a line of its own."""
    return isinstance(item, ToolItem) and item.state == "done" and not item.answer and not item.sent


def _count_reads(items: Iterable[TranscriptItem]) -> ReadingItem:
    counts = {"files": 0, "folders": 0, "searches": 0}
    for item in items:
        if isinstance(item, ToolItem):
            counts[_READING[item.name]] += 1
    return ReadingItem(**counts)
