"""The activity line above the prompt: what is running now. It ticks only while something runs."""

import time
from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from crushpy.core.events import Event, TextDelta
from crushpy.tui.activity import Activity, ActivityRow
from crushpy.tui.textual_adapter import app_of, frame_pause
from crushpy.tui.transcript.render.canvas import Span, TextRow, cells, changed_regions, fit
from crushpy.tui.transcript.render.styles import Palette

TICK_S = 0.15
"""Time between two frames of the spinner."""
TICKS_OF_A_LAGGING_FRAME = 7
"""A terminal that has not drawn the last frame gets another one every second."""
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MAX_ROWS = 5
BAR_COLUMNS = 16
MOVING_COLUMNS = 4
"""Columns of the moving part of an indeterminate progress bar."""
MIN_LABEL_COLUMNS = 16
"""Columns for the label; details are left out if there are fewer."""
STOPS = "Esc stops"


class ActivityLine(Widget):
    """In a terminal with enough rows its first row is always present, so that nothing moves when something
    begins or ends."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "ActivityLine { height: auto; max-height: 5; }"

    def __init__(self, palette: Callable[[], Palette], in_use: Callable[[], int]) -> None:
        super().__init__()
        self._palette = palette
        self._activity = Activity(time.monotonic, in_use)
        self._rows: list[ActivityRow] = []
        self._frame = 0
        self._painted: list[Strip | None] = []
        self._timer: Timer | None = None

    @property
    def ticking(self) -> bool:
        return self._timer is not None

    def hear(self, event: Event) -> None:
        self._activity.hear(event)
        if type(event) is not TextDelta or not self.ticking:  # there are thousands of them
            self._go_on()

    def clear(self) -> None:
        """Forgets the calls: another conversation is shown."""
        self._activity.clear()
        self._go_on()
        self.refresh()

    def own_command(self, command_id: str, command: str, output: str | None) -> None:
        self._activity.own_command(command_id, command, output)
        self._go_on()

    def _go_on(self) -> None:
        """Shows at once that something began or ended; everything else is shown by the next tick."""
        if self._activity.ticks == self.ticking:
            return
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        else:
            self._timer = self.set_interval(TICK_S, self._tick)
        self._show()

    def _tick(self) -> None:
        self._frame += 1
        if self._frame % TICKS_OF_A_LAGGING_FRAME == 0 or frame_pause(app_of(self)) < TICK_S:
            self._show()

    # --- drawing -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        before, self._rows = self._height, self._activity.rows()[:MAX_ROWS]
        if self._height != before:
            self._painted = []
            self.refresh(layout=True)
        elif self.screen is app_of(self).screen:
            after = [self.render_line(y) for y in range(self.size.height)]
            changed = changed_regions(self._painted, after)
            self._painted = [*after]
            if changed:
                self.refresh(*changed)

    @property
    def _height(self) -> int:
        stays = self.screen.has_class("-airy") and not self.screen.has_class("-asking")
        return max(len(self._rows), int(stays))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._height

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._rows):
            return Strip.blank(width, self._palette().text)
        return self._drawn(self._rows[y], width, first=y == 0)

    def _drawn(self, row: ActivityRow, width: int, *, first: bool) -> Strip:
        palette = self._palette()
        spinner = FRAMES[self._frame % len(FRAMES)] if first else "·"
        spans: list[Span] = [(f" {spinner} ", palette["running"])]
        more = [row.more] if row.more else []
        more += ["click opens"] if row.session_id else [STOPS] if first and row.stops else []
        bar, details = _bar(row, palette, self._frame), [(f" · {part}", palette.muted) for part in more]
        age = f" {row.age}" if row.age else ""
        tail, room = list[Span](), 0
        for tail in ([*bar, *details], details, []):  # the label matters most
            room = width - 4 - cells(age) - sum([cells(text) for text, _ in tail])
            if room >= (cells(row.what) if bar else MIN_LABEL_COLUMNS):
                break
        if row.rest:
            room = max(MIN_LABEL_COLUMNS, room - min(cells(row.rest) + 4, width // 3))
        spans.append((fit(row.what, room) + age, palette.text))
        spans += tail
        left = width - 3 - sum([cells(text) for text, _ in spans])
        if row.rest and left >= min(12, cells(row.rest) + 2):
            spans.append((f"  {fit(row.rest, left - 2)}", palette.muted))
        return TextRow([Segment(text, style) for text, style in spans], palette.text).strip(width)

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        if 0 <= event.y < len(self._rows) and self._rows[event.y].session_id:
            await app_of(self).run_action(f"screen.open_session({self._rows[event.y].session_id!r})")


def _bar(row: ActivityRow, palette: Palette, frame: int) -> list[tuple[str, Style]]:
    if not row.moves and not row.total:
        return []
    share = min(1.0, row.done / row.total) if row.total else 0.0
    start, filled = 0, round(share * BAR_COLUMNS)
    if row.moves:
        way = BAR_COLUMNS - MOVING_COLUMNS
        start, filled = min(frame % (2 * way), 2 * way - frame % (2 * way)), MOVING_COLUMNS
    return [
        (" ", palette.text),
        ("━" * start, palette["track"]),
        ("━" * filled, palette["running"]),
        ("━" * (BAR_COLUMNS - start - filled), palette["track"]),
        ("" if row.moves else f" {share:.0%}", palette.muted),
    ]
