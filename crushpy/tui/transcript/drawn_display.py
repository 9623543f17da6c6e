"""A widget that shows a command or a diff as the transcript draws it."""

import time
from collections.abc import Callable

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from crushpy.tui.transcript.render.canvas import Canvas
from crushpy.tui.transcript.render.highlight import Highlighter
from crushpy.tui.transcript.render.styles import Palette

HIGHLIGHT_SLICE_S = 0.008
"""Time spent on syntax colours at once."""


class DrawnDisplay(Widget):
    """As tall as its content. `palette` returns the transcript's colours."""

    DEFAULT_CSS = "DrawnDisplay { height: auto; width: 1fr; }"

    def __init__(self, draw: Callable[[Canvas], None], palette: Callable[[], Palette]) -> None:
        super().__init__()
        self._draw = draw
        self._palette = palette
        self._highlighter = Highlighter()
        self._canvas: Canvas | None = None

    def rows(self, width: int) -> int:
        """Its height at this width."""
        return len(self._drawn(width).rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.rows(width)

    def render_line(self, y: int) -> Strip:
        canvas = self._drawn(self.size.width)
        if not 0 <= y < len(canvas.rows):
            return Strip.blank(self.size.width, canvas.palette.text)
        return canvas.rows[y].strip(self.size.width)

    def _drawn(self, width: int) -> Canvas:
        palette = self._palette()
        if self._canvas is None or self._canvas.width != width or self._canvas.palette is not palette:
            self._highlighter.drop()
            self._canvas = canvas = Canvas(palette, width)
            self._draw(canvas)
            canvas.ask_for_colours(self._highlighter, lambda: canvas is self._canvas)
            self._schedule_work()
        return self._canvas

    def _schedule_work(self) -> None:
        if self._highlighter.busy:
            self.set_timer(HIGHLIGHT_SLICE_S, self._work)

    def _work(self) -> None:
        self._highlighter.work(time.perf_counter() + HIGHLIGHT_SLICE_S)
        self.refresh()
        self._schedule_work()
