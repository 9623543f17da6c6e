"""All items of a transcript: what they are, how tall they are, and the rows of those that are looked at.

Knows no widget. An item is drawn when somebody asks for its rows; until then its height is an estimate.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from crushpy.tui.items import ReadingItem, ReplyItem, ThinkingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.collapsed_reads import end_run, gather, is_reading, run_at_end
from crushpy.tui.transcript.entry_list import EntryList
from crushpy.tui.transcript.heights import Heights
from crushpy.tui.transcript.item_state import ItemState
from crushpy.tui.transcript.markdown.sections import FULL
from crushpy.tui.transcript.render.draw_item import estimate, is_foldable, stands_close
from crushpy.tui.transcript.render.drawn import Drawn, LiveDrawn
from crushpy.tui.transcript.render.highlight import Highlighter
from crushpy.tui.transcript.render.reply_part import ReplyPart, part_of, split_reply, unpacked
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.util.pieces import Pieces

KEPT = 300
"""So many items keep their rows."""
KEPT_ROWS = 5_000
"""And so many rows, but for those of the last few items."""
KEPT_ANYWAY = 8
MANY_ROWS = 50
"""Items of fewer rows are not counted each time: there are thousands of them."""
PATIENCE = 0.02
"""Seconds that drawing one item may take before the rest is left for later."""


class TranscriptModel(EntryList):
    """Draws entries, and keeps what was drawn as long as there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.highlighter = Highlighter()
        self.width = 0
        self._palette: Palette | None = None
        self._drawn: OrderedDict[int, Drawn] = OrderedDict()
        self._unfinished: dict[int, Drawn] = {}
        self._growing: set[int] = set()
        """Keys of entries to which something was streamed."""
        self._replaced: set[int] = set()
        """Keys of entries whose items have changed since the last `flush`."""
        self._kept = KEPT

    @property
    def total(self) -> int:
        return self.heights.total

    @property
    def drawn_items(self) -> int:
        return len(self._drawn)

    @property
    def unpacked_rows(self) -> int:
        growing = [entry.drawn for entry in self.entries if entry is not None and entry.drawn is not None]
        return sum(drawn.rows.unpacked for drawn in (*self._drawn.values(), *growing))

    @property
    def busy(self) -> bool:
        """Something is left to draw or to colour."""
        return bool(self._unfinished or self.highlighter.busy)

    def looks(self, palette: Palette, width: int) -> bool:
        """Everything is drawn in these colours and for this width."""
        return palette is self._palette and width == self.width

    def look(self, palette: Palette, width: int, height: int) -> None:
        """From now on everything is drawn in these colours and for this width."""
        self._palette = palette
        self._kept = max(KEPT, 5 * height)
        self.width = width
        self._drop_all()
        for entry in self.entries:
            if entry is not None and entry.parts is not None:
                entry.drawn = None
                self._begin(entry)
        self._estimate_all()
        self.flush()

    # --- changes -----------------------------------------------------------------------------------------

    def reset(self, items: Sequence[TranscriptItem]) -> None:
        self._drop_all()
        self._replaced.clear()
        self.clear()
        for item in items:
            self._append(item)
        for index, entry in enumerate(self.entries):
            if entry is not None and isinstance(entry.item, ReadingItem):
                entry.item, _ = gather(self.entries, index)
        self._estimate_all()

    def add(self, item: TranscriptItem) -> int:
        start = len(self.entries)
        key = self._append(item)
        for index in range(start, len(self.entries)):
            self.heights.append(self._estimate(index, self[index]))
        return key

    def _append(self, item: TranscriptItem) -> int:
        """A call that only reads has a line for all of its run before it; a long reply comes in parts."""
        run = run_at_end(self.entries) if is_reading(item) else None
        if run is None and is_reading(item):
            run = len(self.entries)
            header = self.append(ReadingItem())
            header.hidden = True
            header.run = run
        first, *others = split_reply(item) if isinstance(item, ReplyItem) else [item]
        if isinstance(first, ReplyPart) and first.number:  # it was split before
            return self.append_part(first).key
        entry = self.append(first)
        entry.run = run
        for part in others:
            self.append_part(part)
        return entry.key

    def replace(self, index: int, item: TranscriptItem) -> None:
        """Nothing is drawn before somebody looks, and nothing measured before `flush`: calls change by the
        thousand."""
        entry = self[index]
        entry.before = self._forget(entry) or entry.before
        self._remove(range(index + 1, self.extent(index)[1] + 1))
        entry.end(item)
        self._replaced.add(entry.key)

    def remove(self, index: int) -> None:
        end_run(self.entries, index)
        first, last = self.extent(index)
        self._remove(range(first, last + 1))

    def _remove(self, indices: range) -> None:
        for index in indices:
            entry = self.entries[index]
            if entry is not None:
                self._forget(entry)
            self.entries[index] = None
            self.heights[index] = 0

    def unfold(self, index: int, unfolded: bool) -> None:
        entry = self[index]
        if not is_foldable(entry.item) or entry.opened is unfolded:
            return
        rows = self._forget(entry)
        entry.unfolded = unfolded
        if entry.parts is not None:
            self._begin(entry)
        self._redraw(index, rows)
        if isinstance(entry.item, ReadingItem):
            self._gather(index)

    def reveal(self, index: int) -> None:
        """Opens the run that hides an entry."""
        header = self[index].run
        if self[index].hidden and header is not None:
            self.unfold(header, True)

    def _measure_replaced(self) -> None:
        """Entries have changed: they are as tall as they seem until they are drawn, and their runs say so."""
        replaced, self._replaced = self._replaced, set()
        runs: set[int] = set()
        for key in replaced:
            index = self.index_of(key)
            if index is None:
                continue
            entry = self[index]
            if entry.run is not None:
                runs.add(entry.run)
            if entry.drawn is None and entry.key not in self._drawn:
                self.heights[index] = self._estimate(index, entry)
        for header in runs:
            self._gather(header)

    def _gather(self, header: int) -> None:
        """Has the line of a run tell its calls, and hides those that it tells while it is closed."""
        line = self[header]
        item, changed = gather(self.entries, header)
        if item != line.item:
            rows = self._forget(line)
            line.item = item
            if not line.hidden:
                self._redraw(header, rows)
        after = self.neighbour(header, 1)
        for index in (*changed, *([] if after is None else [after])):
            self.heights[index] = self._estimate(index, self[index])

    def stream(self, index: int, text: str) -> None:
        """More of an item that grows. Nothing is drawn before `flush`."""
        entry = self[self.extent(index)[1]]
        if entry.parts is None:
            entry.begin_to_grow()
            self._forget(entry)
            self._begin(entry)
        assert entry.parts is not None
        entry.parts.append(text)
        if isinstance(entry.drawn, LiveDrawn) and entry.cutter is None:
            entry.drawn.feed(text)
        if entry.parts.characters > FULL:
            entry.cut()  # in small steps: what comes between two frames may be megabytes
        self._growing.add(entry.key)

    def flush(self) -> None:
        """Draws what was streamed, and measures what was replaced, since the last time."""
        self._measure_replaced()
        growing, self._growing = self._growing, set()
        for key in growing:
            index = self.index_of(key)
            if index is not None and self[index].parts is not None and self._palette is not None:
                self._grow(index)

    def _grow(self, index: int) -> int:
        """Draws what was streamed to an entry; gives the one that goes on growing."""
        index = self._take_streamed(index)
        entry = self[index]
        if isinstance(entry.drawn, LiveDrawn):
            self._advance(entry.key, entry.drawn)
        else:
            before: Sequence[TextRow] = entry.drawn.rows if entry.drawn else ()
            entry.drawn = self._draw(entry, entry.grown())
            entry.drawn.keep_rows(before)
        self._measured(index, entry.drawn)
        return index

    def _take_streamed(self, index: int) -> int:
        """Makes what was streamed a part of the item, where that is a reply. A part that has become complete
        is followed by others; gives the last one."""
        entry = self[index]
        cutter = entry.cutter
        if cutter is None or entry.parts is None or not isinstance(entry.item, ReplyItem):
            return index
        entry.cut()
        if entry.complete:
            first, *others = entry.complete
            self._end_part(index, first, far=bool(others))
            for part in others:
                # Those between were never seen: they are drawn when somebody scrolls to them.
                index = self._add_part(index, part)
            index = self._add_part(index, part_of(first, cutter.section, first.number + 1 + len(others)))
            entry = self[index]
            entry.parts, entry.cutter = Pieces(), cutter
            self._begin(entry)
        entry.item = msgspec.structs.replace(entry.item, text=cutter.text)
        if isinstance(entry.drawn, LiveDrawn):
            entry.drawn.show(cutter.text)
        return index

    def _end_part(self, index: int, part: ReplyPart, *, far: bool) -> None:
        """A part is complete. It stays drawn where somebody saw it; not where the end is `far` from it."""
        entry = self[index]
        drawn = entry.drawn
        entry.end(part)
        if isinstance(drawn, LiveDrawn) and drawn.rows and not far:
            drawn.show(unpacked(part).text)
            self._complete(index, drawn, broken=part.broken)
        else:
            self.heights[index] = self._estimate(index, entry)

    def _add_part(self, index: int, part: ReplyPart) -> int:
        entry = self.insert_part(index + 1, part)
        self.heights[index + 1] = self._estimate(index + 1, entry)
        return index + 1

    def _complete(self, index: int, drawn: LiveDrawn, *, broken: bool = False) -> None:
        entry = self[index]
        drawn.finish(time.perf_counter() + PATIENCE, broken=broken)
        self._finished(entry.key, drawn)
        self._keep(entry.key, drawn)
        self._measured(index, drawn)

    def finish(self, index: int) -> None:
        """An item that grew is complete."""
        index = self.extent(index)[1]
        if self[index].parts is None:
            return
        index = self._take_streamed(index)
        entry = self[index]
        item = entry.grown()
        drawn = entry.drawn
        entry.end(item if isinstance(item, ToolItem) else msgspec.structs.replace(item, done=True))
        if isinstance(drawn, LiveDrawn) and isinstance(item, ReplyItem):
            self._complete(index, drawn)
            return
        self._redraw(index, drawn.rows if drawn else [])
        self._replaced.add(entry.key)

    # --- looking -----------------------------------------------------------------------------------------

    def rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, without the empty one before it. Drawn if need be; its height is then exact."""
        entry = self.entries[index]
        if entry is None or entry.hidden or self._palette is None:
            return []
        drawn = entry.drawn or self._drawn.get(entry.key)
        if drawn is None:
            drawn = self._draw(entry, entry.grown())
            drawn.keep_rows(entry.before[:200])
            entry.before = ()
            self._keep(entry.key, drawn)
        elif entry.drawn is None:
            self._drawn.move_to_end(entry.key)
        self._measured(index, drawn)
        return drawn.rows

    def all_rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, drawn to the last one however long that takes."""
        rows = self.rows(index)
        entry = self.entries[index]
        drawn = entry and (entry.drawn or self._drawn.get(entry.key))
        while entry is not None and drawn is not None and not drawn.complete and not entry.hidden:
            self._advance(entry.key, drawn)
            self._measured(index, drawn)
        return rows

    def work(self, until: float) -> None:
        """Goes on with what is left to draw and to colour."""
        for key, drawn in list(self._unfinished.items()):
            if drawn.dropped:
                del self._unfinished[key]
                continue
            drawn.advance(until)
            self._finished(key, drawn)
            index = self.index_of(key)
            if index is not None:
                self._measured(index, drawn)
            if time.perf_counter() > until:
                return
        self.highlighter.work(until)

    # --- inside ------------------------------------------------------------------------------------------

    def _begin(self, entry: ItemState) -> None:
        """Prepares an entry that grows to be drawn piece by piece."""
        if self._palette is None:
            return
        self._growing.add(entry.key)
        if isinstance(entry.item, ReplyItem):
            entry.drawn = LiveDrawn(entry.item, self._palette, self.width)
        elif isinstance(entry.item, ThinkingItem) and entry.opened:
            entry.drawn = live = LiveDrawn(entry.item, self._palette, self.width)
            live.feed(entry.item.text + "".join(entry.parts or ()))

    def _draw(self, entry: ItemState, item: TranscriptItem) -> Drawn:
        assert self._palette is not None
        drawn = Drawn(item, self._palette, self.width, opened=entry.opened)
        self._advance(entry.key, drawn)
        return drawn

    def _advance(self, key: int, drawn: Drawn) -> None:
        drawn.advance(time.perf_counter() + PATIENCE)
        self._finished(key, drawn)

    def _finished(self, key: int, drawn: Drawn) -> None:
        drawn.ask_for_colours(self.highlighter)
        if drawn.complete:
            self._unfinished.pop(key, None)
        else:
            self._unfinished[key] = drawn

    def _keep(self, key: int, drawn: Drawn) -> None:
        self._drawn[key] = drawn
        while len(self._drawn) > self._kept:
            self._drop_oldest()
        if drawn.rows.unpacked > MANY_ROWS:
            rows = sum([one.rows.unpacked for one in self._drawn.values()])
            while rows > KEPT_ROWS and len(self._drawn) > KEPT_ANYWAY:
                rows -= self._drop_oldest().rows.unpacked

    def _drop_oldest(self) -> Drawn:
        oldest = self._drawn.popitem(last=False)[1]
        oldest.dropped = True
        return oldest

    def _forget(self, entry: ItemState) -> Sequence[TextRow]:
        """Lets go of an entry's drawing; its rows may serve the next one."""
        drawn = self._drawn.pop(entry.key, None) or entry.drawn
        entry.drawn = None
        self._unfinished.pop(entry.key, None)
        if drawn is None:
            return []
        drawn.dropped = True
        return drawn.rows

    def _redraw(self, index: int, before: Sequence[TextRow]) -> None:
        entry = self[index]
        if self._palette is None or not before:
            self.heights[index] = self._estimate(index, entry)
            return
        if entry.parts is not None:
            self.flush()
            return
        drawn = self._draw(entry, entry.grown())
        drawn.keep_rows(before[:200])
        self._keep(entry.key, drawn)
        self._measured(index, drawn)

    def _measured(self, index: int, drawn: Drawn) -> None:
        self.heights[index] = 0 if self[index].hidden else self.space(index) + len(drawn.rows)

    def _estimate(self, index: int, entry: ItemState) -> int:
        if entry.hidden:
            return 0
        return self.space(index) + estimate(entry.item, self.width, opened=entry.opened)

    def _estimate_all(self) -> None:
        self.heights = Heights(self._estimates())

    def _estimates(self) -> Iterator[int]:
        before: TranscriptItem | None = None
        for entry in self.entries:
            if entry is None or entry.hidden:
                yield 0
                continue
            space = 0 if stands_close(entry.item, before) else 1
            before = entry.item
            yield space + estimate(before, self.width, opened=entry.opened)

    def _drop_all(self) -> None:
        for drawn in self._drawn.values():
            drawn.dropped = True
        self._drawn.clear()
        self._unfinished.clear()
        self.highlighter.drop()
