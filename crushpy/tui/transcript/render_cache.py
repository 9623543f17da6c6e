"""The rows of the items that are looked at: drawn when asked for, kept while there is room.

A large item is drawn over several frames, and one that grows is drawn from where it has changed.
"""

import gc
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence

import msgspec

from crushpy.tui.items import BoundaryItem, ReadingItem, ReplyItem, ThinkingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.canvas import Canvas, TextRow
from crushpy.tui.transcript.render.draw_item import draw_item, is_foldable, open_stream
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
    """The rows of an item. Large ones are drawn over several calls of `advance`; a text may grow."""

    def __init__(self, entry: ItemState, palette: Palette, width: int, *, opened: bool) -> None:
        self.canvas = Canvas(palette, width, entry.depth, focused=entry.focused)
        self.rows = self.canvas.rows
        self.complete = False
        self.dropped = False
        """No longer needed: its colours need not be computed."""
        self._frozen_rows = 0
        item = entry.current_item()
        self._stream: MarkdownStream | None = None
        self._steps: Iterator[None] = draw_item(item, self.canvas, opened=opened)
        grows = entry.streamed is not None and (opened or not isinstance(item, ThinkingItem))
        if grows and isinstance(item, ReplyItem | ThinkingItem):
            self._stream = open_stream(item, self.canvas)
            self.feed(item.text)

    def feed(self, text: str) -> bool:
        """Adds to a text that grows; False if it must be drawn again instead."""
        if self._stream is not None:
            self._stream.feed(text)
            self._steps, self.complete = self._stream.draw(), False
        return self._stream is not None

    def finish(self) -> bool:
        """Marks a text that grew as complete; False if it must be drawn again instead."""
        if self._stream is not None:
            self._steps, self.complete = self._stream.finish(), False
        return self._stream is not None

    def advance(self, until: float) -> None:
        """Draws until that time (`time.perf_counter`), at least one step."""
        for _ in self._steps:
            if time.perf_counter() > until:
                break
        else:
            self.complete = True
        if len(self.rows) - self._frozen_rows > ROWS_PER_FREEZE:
            self._frozen_rows = len(self.rows)
            gc.freeze()


class RenderCache:
    """Draws the entries of a model, and sets their exact heights in it."""

    def __init__(self, model: TranscriptModel) -> None:
        self.model = model
        self.highlighter = Highlighter()
        self._palette: Palette | None = None
        self.drawings: OrderedDict[int, Drawing] = OrderedDict()
        """By key, those used last at the end."""
        self._streamed_to: set[int] = set()
        """Keys of entries that have grown since the last `flush`."""
        self._replaced: set[int] = set()
        """Keys of entries whose items have changed since the last `flush`."""
        self._focused: int | None = None

    @property
    def busy(self) -> bool:
        """Whether something is left to draw or to colour."""
        return self.highlighter.busy or not all(drawing.complete for drawing in self.drawings.values())

    def set_style(self, palette: Palette, width: int) -> bool:
        """Draws everything in these colours and for this width from now on; False if it did already."""
        if palette is self._palette and width == self.model.width:
            return False
        self._palette = palette
        self.model.width = width
        self._drop_all()
        self._streamed_to = {entry.key for entry in self.model.entries if entry.streamed is not None}
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
        self._drop(entry.key)
        entry.set_item(item)
        self._replaced.add(entry.key)

    def remove(self, index: int) -> None:
        self._drop(self.model[index].key)
        self.model.remove(index)

    def set_opened(self, index: int, opened: bool) -> None:
        entry = self.model[index]
        if not is_foldable(entry.item) or entry.opened is opened:
            return
        entry.unfolded = opened
        self._redraw(index)
        if isinstance(entry.item, ReadingItem):
            self._update_run(index)

    def focus(self, key: int | None) -> None:
        """Shows the details of this item only."""
        if key == self._focused:
            return
        for changed, focused in ((self._focused, False), (key, True)):
            index = None if changed is None else self.model.index_of(changed)
            if index is not None and isinstance(self.model[index].item, ToolItem | BoundaryItem):
                self.model[index].focused = focused
                self._redraw(index)
        self._focused = key

    def stream(self, index: int, text: str) -> None:
        """Appends to an item. Nothing is drawn before `flush`."""
        entry = self.model[index]
        if entry.streamed is None:
            entry.streamed = []
            self._drop(entry.key)
        entry.streamed.append(text)
        drawing = self.drawings.get(entry.key)
        if drawing is not None and not drawing.feed(text):
            self._drop(entry.key)
        self._streamed_to.add(entry.key)

    def finish(self, index: int, message_id: str) -> None:
        """Marks an item that grew as complete; it is stored as that message."""
        entry = self.model[index]
        if entry.streamed is None:
            return
        item = entry.current_item()
        if isinstance(item, ReplyItem | ThinkingItem):
            item = msgspec.structs.replace(item, done=True, message_id=message_id)
        entry.set_item(item)
        drawing = self.drawings.get(entry.key)
        if drawing is not None and isinstance(item, ReplyItem) and drawing.finish():
            self._advance(index, drawing)
        else:
            self._redraw(index)
            self._replaced.add(entry.key)

    def flush(self) -> None:
        """Draws what was streamed, and measures what was replaced, since the last call."""
        self._measure_replaced()
        keys, self._streamed_to = self._streamed_to, set()
        for key in keys:
            index = self.model.index_of(key)
            if index is not None and self.model[index].streamed is not None and self._palette is not None:
                drawing = self.drawings.get(key)
                if drawing is None:
                    self._draw(index, self._palette)
                else:
                    self.drawings.move_to_end(key)
                    self._advance(index, drawing)

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
            if self.model[header].hidden:
                self._drop(self.model[header].key)
            else:
                self._redraw(header)

    # --- looking -----------------------------------------------------------------------------------------

    def rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, without the empty one before it. Drawn if need be; its height is then exact."""
        entry = self.model.entries[index]
        if entry.hidden or self._palette is None:
            return []
        drawing = self.drawings.get(entry.key)
        if drawing is None:
            return self._draw(index, self._palette).rows
        self.drawings.move_to_end(entry.key)
        self._measure(index, drawing)
        return drawing.rows

    def is_complete(self, index: int) -> bool:
        """Whether all of an entry's rows are drawn."""
        key = self.model[index].key
        return key in self.drawings and self.drawings[key].complete

    def draw_all(self, index: int) -> Iterator[None]:
        """Draws an entry to its last row, step by step."""
        self.rows(index)
        entry = self.model[index]
        drawing = None if entry.hidden else self.drawings.get(entry.key)
        while drawing is not None and not (drawing.complete or drawing.dropped):
            yield
            self._advance(index, drawing)

    def all_rows(self, index: int) -> Sequence[TextRow]:
        """An entry's rows, drawn to the last one however long that takes."""
        for _ in self.draw_all(index):
            pass
        return self.rows(index)

    def draw_unseen(self, index: int, *, opened: bool) -> Generator[None, None, Sequence[TextRow]]:
        """The rows that an entry would have if it were visible, and open or closed; none of them is kept."""
        if self._palette is None:
            return []
        drawing = Drawing(self.model[index], self._palette, self.model.width, opened=opened)
        while not drawing.complete:
            drawing.advance(time.perf_counter() + DRAW_BUDGET_S)
            yield
        return drawing.rows

    def work(self, until: float) -> None:
        """Continues with what is left to draw and to colour."""
        for key in [key for key, drawing in self.drawings.items() if not drawing.complete]:
            index = self.model.index_of(key)
            if index is not None:
                self._advance(index, self.drawings[key], until)
            if time.perf_counter() > until:
                return
        self.highlighter.work(until)

    # --- drawing -----------------------------------------------------------------------------------------

    def _draw(self, index: int, palette: Palette) -> Drawing:
        """Draws an entry, and keeps its rows; those used longest ago are dropped if there are too many."""
        entry = self.model[index]
        drawing = Drawing(entry, palette, self.model.width, opened=entry.opened)
        self.drawings[entry.key] = drawing
        self._advance(index, drawing)
        rows = sum([len(drawing.rows) for drawing in self.drawings.values()])
        while len(self.drawings) > (MIN_ITEMS if rows > MAX_ROWS else MAX_ITEMS):
            oldest = next(iter(self.drawings))
            rows -= len(self.drawings[oldest].rows)
            self._drop(oldest)
        return drawing

    def _redraw(self, index: int) -> None:
        """Draws an entry again; one that was not drawn before is only estimated."""
        if self._drop(self.model[index].key) and self._palette is not None:
            self._draw(index, self._palette)
        else:
            self.model.estimate(index)

    def _advance(self, index: int, drawing: Drawing, until: float = 0.0) -> None:
        drawing.advance(until or time.perf_counter() + DRAW_BUDGET_S)
        drawing.canvas.ask_for_colours(self.highlighter, lambda: not drawing.dropped)
        self._measure(index, drawing)

    def _measure(self, index: int, drawing: Drawing) -> None:
        hidden = self.model[index].hidden
        self.model.heights[index] = 0 if hidden else self.model.space(index) + len(drawing.rows)

    def _drop(self, key: int) -> bool:
        """Forgets an entry's drawing; False if it was not drawn."""
        drawing = self.drawings.pop(key, None)
        if drawing is not None:
            drawing.dropped = True
        return drawing is not None

    def _drop_all(self) -> None:
        for key in list(self.drawings):
            self._drop(key)
        self.highlighter.drop()
