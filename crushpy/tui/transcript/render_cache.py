"""The rows of the items that are looked at: drawn when asked for, kept while there is room.

A large item is drawn over several frames, and one that grows is drawn from where it has changed.
"""

import gc
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from crushpy.tui.items import ReadingItem, ReplyItem, ThinkingItem, TranscriptItem
from crushpy.tui.transcript.render.canvas import Canvas, TextRow
from crushpy.tui.transcript.render.draw_item import (
    draw_item,
    draw_thinking_head,
    is_foldable,
    open_reply,
    open_thinking,
)
from crushpy.tui.transcript.render.highlight import Highlighter
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.transcript_model import ItemState, TranscriptModel

MAX_ITEMS = 1_000
"""Items whose rows are kept: more than fit on any screen."""
MAX_ROWS = 5_000
"""Rows that are kept, not counting those of the items drawn last."""
MIN_ITEMS = 8
"""Items drawn last that are kept however many rows they have."""
DRAW_BUDGET_S = 0.02
"""Time for drawing one item before the rest is left for later."""
ROWS_PER_FREEZE = 5_000
"""Rows after which those of a drawing are exempted from garbage collection: a collection that walks over all
rows of a reply of two megabytes takes up to a second, in which no key is handled."""


class Drawing:
    """The rows of an item. Large ones are drawn over several calls of `advance`."""

    grows = False
    """More text is to come: it must be kept."""

    def __init__(
        self, item: TranscriptItem, palette: Palette, width: int, depth: int, *, opened: bool
    ) -> None:
        self.canvas = Canvas(palette, width, depth)
        self.complete = False
        self.dropped = False
        """No longer needed: its colours need not be computed."""
        self.frozen_rows = 0
        self._steps: Iterator[None] = draw_item(item, self.canvas, opened=opened)

    @property
    def rows(self) -> list[TextRow]:
        return self.canvas.rows

    def advance(self, until: float) -> None:
        """Draws until that time (`time.perf_counter`), at least one step."""
        for _ in self._steps:
            if time.perf_counter() > until:
                return
        self.complete = True


class LiveDrawing(Drawing):
    """A reply, or opened thoughts, that still grow."""

    grows = True

    def __init__(self, item: ReplyItem | ThinkingItem, palette: Palette, width: int, depth: int) -> None:
        super().__init__(item, palette, width, depth, opened=True)
        if isinstance(item, ThinkingItem):
            draw_thinking_head(item, self.canvas, opened=True)
            self._stream = open_thinking(self.canvas)
        else:
            self._stream = open_reply(self.canvas)
        self._steps = iter(())

    def feed(self, text: str) -> None:
        self._stream.feed(text)
        self.complete = False

    def advance(self, until: float) -> None:
        """Draws what arrived since the last call; only the unfinished end is drawn again."""
        if not self.grows:
            super().advance(until)
            return
        for _ in self._stream.settle():
            if time.perf_counter() > until:
                return
        self._stream.draw_tail()
        self.complete = True

    def finish(self, until: float) -> None:
        """Marks the text as complete; `advance` draws what is left."""
        self._steps = self._stream.finish()
        self.grows = self.complete = False
        self.advance(until)


class RenderCache:
    """Draws the entries of a model, and sets their exact heights in it."""

    def __init__(self, model: TranscriptModel) -> None:
        self.model = model
        self.highlighter = Highlighter()
        self._palette: Palette | None = None
        self.drawings: OrderedDict[int, Drawing] = OrderedDict()
        """By key, those used last at the end."""
        self._unfinished: dict[int, Drawing] = {}
        self._streamed_to: set[int] = set()
        """Keys of entries that have grown since the last `flush`."""
        self._replaced: set[int] = set()
        """Keys of entries whose items have changed since the last `flush`."""

    @property
    def busy(self) -> bool:
        """Whether something is left to draw or to colour."""
        return bool(self._unfinished or self.highlighter.busy)

    def set_style(self, palette: Palette, width: int) -> bool:
        """Draws everything in these colours and for this width from now on; False if it did already."""
        if palette is self._palette and width == self.model.width:
            return False
        self._palette = palette
        self.model.width = width
        self._drop_all()
        for entry in self.model.entries:
            if entry.streamed is not None:
                self._begin_live(entry)
        self.model.estimate_all()
        self.flush()
        return True

    # --- changes -----------------------------------------------------------------------------------------

    def reset(self, items: Sequence[TranscriptItem]) -> None:
        self._drop_all()
        self._replaced.clear()
        self._streamed_to.clear()
        self.model.reset(items)

    def replace(self, index: int, item: TranscriptItem) -> None:
        """Nothing is drawn or measured before `flush`: there may be thousands of changes."""
        entry = self.model[index]
        self._drop(entry)
        entry.set_item(item)
        self._replaced.add(entry.key)

    def remove(self, index: int) -> None:
        self._drop(self.model[index])
        self.model.remove(index)

    def set_opened(self, index: int, opened: bool) -> None:
        entry = self.model[index]
        if not is_foldable(entry.item) or entry.opened is opened:
            return
        was_drawn = self._drop(entry)
        entry.unfolded = opened
        if entry.streamed is not None:
            self._begin_live(entry)
        self._redraw(index, was_drawn)
        if isinstance(entry.item, ReadingItem):
            self._update_run(index)

    def stream(self, index: int, text: str) -> None:
        """Appends to an item. Nothing is drawn before `flush`."""
        entry = self.model[index]
        if entry.streamed is None:
            entry.streamed = []
            self._drop(entry)
            self._begin_live(entry)
        entry.streamed.append(text)
        live = self.drawings.get(entry.key)
        if isinstance(live, LiveDrawing):
            live.feed(text)
        self._streamed_to.add(entry.key)

    def finish(self, index: int) -> None:
        """Marks an item that grew as complete."""
        entry = self.model[index]
        if entry.streamed is None:
            return
        item = entry.current_item()
        live = self.drawings.get(entry.key)
        done = isinstance(item, ReplyItem | ThinkingItem)
        entry.set_item(msgspec.structs.replace(item, done=True) if done else item)
        if isinstance(live, LiveDrawing) and isinstance(item, ReplyItem):
            live.finish(time.perf_counter() + DRAW_BUDGET_S)
            self._note_progress(entry.key, live)
            self._measure(index, live)
        else:
            self._redraw(index, self._drop(entry))
            self._replaced.add(entry.key)

    def flush(self) -> None:
        """Draws what was streamed, and measures what was replaced, since the last call."""
        self._measure_replaced()
        keys, self._streamed_to = self._streamed_to, set()
        for key in keys:
            index = self.model.index_of(key)
            if index is None or self.model[index].streamed is None or self._palette is None:
                continue
            drawing = self.drawings.get(key)
            if isinstance(drawing, LiveDrawing):
                self._advance(key, drawing)
            else:
                drawing = self._draw(self.model[index])
            self._measure(index, drawing)

    def _measure_replaced(self) -> None:
        """Estimates the heights of replaced items that are not drawn, and updates the runs they belong to."""
        keys, self._replaced = self._replaced, set()
        runs: set[int] = set()
        for key in keys:
            index = self.model.index_of(key)
            if index is None:
                continue
            entry = self.model[index]
            if entry.run is not None:
                runs.add(entry.run)
            if key not in self.drawings:
                self.model.estimate(index)
        for header in runs:
            self._update_run(header)

    def _update_run(self, header: int) -> None:
        if self.model.update_run(header):
            line = self.model[header]
            was_drawn = self._drop(line)
            if not line.hidden:
                self._redraw(header, was_drawn)

    # --- looking -----------------------------------------------------------------------------------------

    def rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, without the empty one before it. Drawn if need be; its height is then exact."""
        entry = self.model.entries[index]
        if entry.hidden or self._palette is None:
            return []
        drawing = self.drawings.get(entry.key) or self._draw(entry)
        self.drawings.move_to_end(entry.key)
        self._measure(index, drawing)
        return drawing.rows

    def is_complete(self, index: int) -> bool:
        """Whether all of an entry's rows are drawn."""
        drawing = self.drawings.get(self.model[index].key)
        return drawing is not None and drawing.complete

    def draw_all(self, index: int) -> Iterator[None]:
        """Draws an entry to its last row, step by step."""
        self.rows(index)
        entry = self.model[index]
        drawing = None if entry.hidden else self.drawings.get(entry.key)
        while drawing is not None and not (drawing.complete or drawing.dropped):
            yield
            self._advance(entry.key, drawing)
            self._measure(index, drawing)

    def all_rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, drawn to the last one however long that takes."""
        for _ in self.draw_all(index):
            pass
        return self.rows(index)

    def work(self, until: float) -> None:
        """Continues with what is left to draw and to colour."""
        for key, drawing in list(self._unfinished.items()):
            if drawing.dropped:
                del self._unfinished[key]
                continue
            drawing.advance(until)
            self._note_progress(key, drawing)
            index = self.model.index_of(key)
            if index is not None:
                self._measure(index, drawing)
            if time.perf_counter() > until:
                return
        self.highlighter.work(until)

    # --- drawing -----------------------------------------------------------------------------------------

    def _begin_live(self, entry: ItemState) -> None:
        """Prepares an entry that grows to be drawn incrementally."""
        if self._palette is None:
            return
        self._streamed_to.add(entry.key)
        item = entry.item
        if isinstance(item, ReplyItem) or (isinstance(item, ThinkingItem) and entry.opened):
            live = LiveDrawing(item, self._palette, self.model.width, entry.depth)
            live.feed(item.text + "".join(entry.streamed or ()))
            self._keep(entry.key, live)

    def _draw(self, entry: ItemState) -> Drawing:
        assert self._palette is not None
        drawing = Drawing(
            entry.current_item(), self._palette, self.model.width, entry.depth, opened=entry.opened
        )
        self._advance(entry.key, drawing)
        self._keep(entry.key, drawing)
        return drawing

    def _redraw(self, index: int, was_drawn: bool) -> None:
        """Draws an entry again; one that was not drawn before is only estimated."""
        entry = self.model[index]
        if self._palette is None or not was_drawn:
            self.model.estimate(index)
        elif entry.streamed is not None:
            self.flush()
        else:
            self._measure(index, self._draw(entry))

    def _advance(self, key: int, drawing: Drawing) -> None:
        drawing.advance(time.perf_counter() + DRAW_BUDGET_S)
        self._note_progress(key, drawing)

    def _note_progress(self, key: int, drawing: Drawing) -> None:
        drawing.canvas.ask_for_colours(self.highlighter, lambda: not drawing.dropped)
        if len(drawing.rows) - drawing.frozen_rows > ROWS_PER_FREEZE:
            drawing.frozen_rows = len(drawing.rows)
            gc.freeze()
        if drawing.complete:
            self._unfinished.pop(key, None)
        else:
            self._unfinished[key] = drawing

    def _measure(self, index: int, drawing: Drawing) -> None:
        hidden = self.model[index].hidden
        self.model.heights[index] = 0 if hidden else self.model.space(index) + len(drawing.rows)

    def _keep(self, key: int, drawing: Drawing) -> None:
        self.drawings[key] = drawing
        self.drawings.move_to_end(key)
        whole = [key for key, drawing in self.drawings.items() if not drawing.grows]
        rows = sum([len(self.drawings[key].rows) for key in whole])
        while len(whole) > (MIN_ITEMS if rows > MAX_ROWS else MAX_ITEMS):
            oldest = self.drawings.pop(whole.pop(0))
            oldest.dropped = True
            rows -= len(oldest.rows)

    def _drop(self, entry: ItemState) -> bool:
        """Forgets an entry's drawing; False if it was not drawn."""
        drawing = self.drawings.pop(entry.key, None)
        self._unfinished.pop(entry.key, None)
        if drawing is not None:
            drawing.dropped = True
        return drawing is not None

    def _drop_all(self) -> None:
        for drawing in self.drawings.values():
            drawing.dropped = True
        self.drawings.clear()
        self._unfinished.clear()
        self.highlighter.drop()
