"""An item as it is drawn: its rows, as far as they are done, and the code in it that waits for colours."""

import time
from collections.abc import Iterator, Sequence

from crushpy.tui.items import ReplyItem, ThinkingItem, TranscriptItem
from crushpy.tui.transcript.render.canvas import Canvas
from crushpy.tui.transcript.render.draw_item import draw_item, draw_thinking_head, open_reply, open_thinking
from crushpy.tui.transcript.render.highlight import Highlighter
from crushpy.tui.transcript.render.row_store import RowStore
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.text_row import TextRow


class Drawn:
    """A whole item. Large ones are drawn over several calls of `advance`."""

    def __init__(self, item: TranscriptItem, palette: Palette, width: int, *, opened: bool) -> None:
        self.canvas = Canvas(palette, width)
        self.complete = False
        self.dropped = False
        """Nobody looks at it any more."""
        self._steps: Iterator[None] = draw_item(item, self.canvas, opened=opened)

    @property
    def rows(self) -> RowStore:
        return self.canvas.rows

    def advance(self, until: float) -> None:
        """Draws on until that moment (`time.perf_counter`), at least one step."""
        for _ in self._steps:
            if time.perf_counter() > until:
                self.rows.pack(self.settled)
                return
        self.complete = not self.rows.pack(self.settled)

    @property
    def settled(self) -> int:
        """How many rows stay, but for their colours."""
        return len(self.rows)

    def keep_rows(self, before: Sequence[TextRow], start: int = 0) -> None:
        """Takes over rows of an earlier drawing that look the same: they need not be painted again."""
        rows = self.canvas.rows
        for index in range(start, min(len(before) + start, len(rows))):
            old = before[index - start]
            if rows[index] is not old and rows[index].same(old):
                rows[index] = old

    def ask_for_colours(self, highlighter: Highlighter) -> None:
        """Has the code that was drawn since the last call coloured."""
        self.canvas.ask_for_colours(highlighter, lambda: not self.dropped)


class LiveDrawn(Drawn):
    """A reply, or opened thoughts, that still grow."""

    def __init__(self, item: ReplyItem | ThinkingItem, palette: Palette, width: int) -> None:
        super().__init__(item, palette, width, opened=True)
        if isinstance(item, ThinkingItem):
            draw_thinking_head(item, self.canvas, opened=True)
            self.stream = open_thinking(self.canvas)
        else:
            self.stream = open_reply(item, self.canvas)
        self._steps = iter(())
        self._ended = False
        self._lines_fed = 0
        """Of the text that `show` was given last: up to where its lines are complete."""

    def feed(self, text: str) -> None:
        self.stream.feed(text)
        self.complete = False

    def show(self, text: str) -> None:
        """All of its text as it is now. Lines that were complete before are the same."""
        self.stream.replace_rest(text[self._lines_fed :])
        self._lines_fed = text.rfind("\n") + 1
        self.complete = False

    def advance(self, until: float) -> None:
        """Draws what came since the last time; only the unfinished end is drawn again."""
        if self._ended:
            super().advance(until)
            return
        start = self.stream.sealed
        before = self.rows[start:]
        for _ in self.stream.settle():
            if time.perf_counter() > until:
                self.rows.pack(self.settled)
                return
        self.stream.draw_tail()
        self.keep_rows(before, start)
        self.complete = not self.rows.pack(self.settled)

    @property
    def settled(self) -> int:
        return self.stream.sealed

    def finish(self, until: float, *, broken: bool = False) -> None:
        """No more will come; `advance` completes what there is no time for now. `broken`: inside a line."""
        start = self.stream.sealed
        before = self.rows[start:]
        self._steps = self.stream.finish(broken=broken)
        self._ended, self.complete = True, False
        self.advance(until)
        self.keep_rows(before, start)
