"""The entries of a transcript in order, how tall each is, and which belong together.

A long reply has an entry for each of its parts. The key of an item is that of its first entry; those of its
parts follow it, so that keys grow from top to bottom wherever a part is added.
"""

from bisect import bisect_left
from collections.abc import Iterator

from crushpy.tui.items import ReplyItem, TranscriptItem
from crushpy.tui.transcript.heights import Heights
from crushpy.tui.transcript.item_state import ItemState
from crushpy.tui.transcript.render.draw_item import stands_close
from crushpy.tui.transcript.render.reply_part import joined_reply

KEYS_OF_ITEM = 1 << 12
"""More than any reply has parts."""


def item_key(key: int) -> int:
    """The key of the item that an entry shows, or shows a part of."""
    return key - key % KEYS_OF_ITEM


class EntryList:
    """Entries by index. Keys are never used twice; a removed entry leaves a gap of height 0."""

    def __init__(self) -> None:
        self.entries: list[ItemState | None] = []
        self.heights = Heights()
        self._keys: list[int] = []
        self._next_key = 0
        self._inserted: list[int] = []

    def __getitem__(self, index: int) -> ItemState:
        entry = self.entries[index]
        assert entry is not None
        return entry

    # --- changes -----------------------------------------------------------------------------------------

    def clear(self) -> None:
        self.entries, self._keys, self._inserted = [], [], []

    def append(self, item: TranscriptItem) -> ItemState:
        """An entry for another item. The caller sees to its height."""
        entry = ItemState(self._next_key, item)
        self._next_key += KEYS_OF_ITEM
        self._put(len(self.entries), entry)
        return entry

    def append_part(self, item: TranscriptItem) -> ItemState:
        """An entry for a further part of the last item. The caller sees to its height."""
        entry = ItemState(self._keys[-1] + 1, item)
        self._put(len(self.entries), entry)
        return entry

    def insert_part(self, index: int, item: TranscriptItem) -> ItemState:
        """An entry for a further part of the item that ends before `index`."""
        entry = ItemState(self._keys[index - 1] + 1, item)
        if index == len(self.entries):
            self.heights.append(0)
        else:
            heights = [self.heights[at] for at in range(len(self.heights))]
            self.heights = Heights([*heights[:index], 0, *heights[index:]])
            self._inserted.append(index)
            for later in self.entries[index:]:
                if later is not None and later.run is not None:
                    later.run += 1
        self._put(index, entry)
        return entry

    def _put(self, index: int, entry: ItemState) -> None:
        self.entries.insert(index, entry)
        self._keys.insert(index, entry.key)

    def take_inserted(self) -> list[int]:
        """Where entries were put before others since the last time, in order."""
        inserted, self._inserted = self._inserted, []
        return inserted

    # --- looking -----------------------------------------------------------------------------------------

    def place_of(self, key: int) -> int:
        """The index of a key, or of the one after it where it is gone."""
        return bisect_left(self._keys, key)

    def index_of(self, key: int) -> int | None:
        """Where the entry with that key stands; None where it is gone."""
        index = self.place_of(key)
        known = index < len(self.entries) and self._keys[index] == key
        return index if known and self.entries[index] is not None else None

    def extent(self, index: int) -> tuple[int, int]:
        """The first and the last entry of the item that this one belongs to."""
        key = item_key(self._keys[index])
        return self.place_of(key), self.place_of(key + KEYS_OF_ITEM) - 1

    def parts(self, index: int) -> Iterator[ItemState]:
        """All entries of the item that this one belongs to."""
        first, last = self.extent(index)
        return (entry for entry in self.entries[first : last + 1] if entry is not None)

    def whole(self, index: int) -> TranscriptItem:
        """The item as it is now, however many entries it has."""
        items = [entry.grown() for entry in self.parts(index)]
        replies = [item for item in items if isinstance(item, ReplyItem)]
        return joined_reply(replies) if replies else items[0]

    def neighbour(self, index: int, step: int) -> int | None:
        """The next entry in that direction (1 or -1) that can be seen."""
        index += step
        while 0 <= index < len(self.entries):
            entry = self.entries[index]
            if entry is not None and not entry.hidden:
                return index
            index += step
        return None

    def space(self, index: int) -> int:
        """Empty rows before an entry: 1 or 0."""
        entry = self.entries[index]
        if entry is None or entry.hidden:
            return 0
        before = self.neighbour(index, -1)
        return 0 if stands_close(entry.item, None if before is None else self[before].item) else 1
