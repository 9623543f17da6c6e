"""Writes changed lines straight to the terminal, past Textual's compositor, when nothing can be in the way.

Lines that only moved up are moved by the terminal itself, and no more is written than it can take at once.
The compositor keeps nothing of what the transcript paints, so whatever it repaints later agrees with this.
Uses private names of Textual 8.2.8, all of them here; where one is missing, the usual way is taken.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence

from rich.control import Control
from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from crushpy.tui.app_type import app_of
from crushpy.tui.terminal.pace import UNBOUNDED
from crushpy.tui.terminal.paced_output import output_of

WORTH_MOVING = 3
"""Lines that moving must spare."""

Lines = Sequence[Strip | None]
"""What stands on the screen, line by line; None where that is not certain."""


def paint_directly(widget: Widget, before: Lines, after: Sequence[Strip]) -> list[Strip | None] | None:
    """Paints what changed, the last lines first, as far as the terminal takes it now.

    Gives what stands there then.
    None where nothing may be painted this way: then the widget must be refreshed.
    """
    try:
        output = output_of(app_of(widget))
        if output is not None and output.is_slow and _is_about_to_paint(widget):
            return [*before]
        if not _is_clear(widget):
            return None
        region = widget.screen.find_widget(widget).region
        app, driver, console = widget.app, widget.app._driver, widget.app.console
        assert driver is not None
        parts: list[str] = []
        standing = [*before[: len(after)], *[None] * (len(after) - len(before))]
        moved = _moved_up(standing, after) if region.width == app.size.width else 0
        if moved:
            standing = [*standing[moved:], *[None] * moved]
            parts.append(_move_up(region.y, region.bottom, moved))
        room = UNBOUNDED if output is None else output.room
        for y in range(len(after) - 1, -1, -1):
            if standing[y] is after[y]:
                continue
            x, strip = _changed_part(standing[y], after[y])
            line = Control.move_to(region.x + x, region.y + y).segment.text + strip.render(console)
            if room <= 0 or (len(line) > room and len(parts) > bool(moved)):
                break
            room -= len(line.encode(errors="replace"))
            parts.append(line)
            standing[y] = after[y]
        parts.append(
            Control.move_to(*widget.screen.outer_size.clamp_offset(app.cursor_position)).segment.text
        )
        app._begin_update()
        try:
            driver.write("".join(parts))
        finally:
            app._end_update()
        driver.flush()
    except AttributeError:
        return None
    return standing


def _moved_up(before: Lines, after: Sequence[Strip]) -> int:
    """By how many lines most of what stands there has moved up; 0 where painting it is as good."""
    best, moved = sum(map(_same, before, after)) + WORTH_MOVING, 0
    for by in range(1, len(after) - WORTH_MOVING):
        if before[by] is after[0]:
            same = sum(map(_same, before[by:], after))
            if same > best:
                best, moved = same, by
    return moved


def _changed_part(before: Strip | None, after: Strip) -> tuple[int, Strip]:
    """From where on a line differs, and what stands there: not its beginning, not the blanks at its end."""
    if before is None or before.cell_length != after.cell_length:
        return 0, after
    old, new = [*before], [*after]
    same = x = 0
    while same < min(len(old), len(new)) - 1 and old[same] == new[same]:
        x += new[same].cell_length
        same += 1
    rest = new[same:]
    if old and rest and old[-1].style == rest[-1].style:
        blanks = min(_blanks(old[-1].text), _blanks(rest[-1].text))
        rest[-1] = Segment(rest[-1].text[: len(rest[-1].text) - blanks], rest[-1].style)
    return x, Strip(rest)


def _blanks(text: str) -> int:
    return len(text) - len(text.rstrip(" "))


def _same(one: Strip | None, other: Strip) -> bool:
    return one is other


def _move_up(top: int, bottom: int, by: int) -> str:
    """Line feeds at the end of a scrolling region, which every terminal has."""
    return f"\x1b[{top + 1};{bottom}r\x1b[{bottom};1H" + "\n" * by + "\x1b[r"


def _is_about_to_paint(widget: Widget) -> bool:
    """The compositor has something to show, a key most likely, and will in a moment."""
    app, screen = widget.app, widget.screen
    waits = bool(screen._dirty_widgets or screen._compositor._dirty_regions or screen._layout_required)
    return screen is app.screen and widget not in screen._dirty_widgets and (waits or app._batch_count > 0)


def _is_clear(widget: Widget) -> bool:
    """One screen, laid out and up to date where the widget is, with nothing over it."""
    app, screen = widget.app, widget.screen
    if app.is_headless or app.is_inline or app._driver is None or not app._running or app._batch_count:
        return False
    if screen is not app.screen or app._background_screens or screen.selections:
        return False
    if (
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or widget._repaint_required
    ):
        return False
    if widget in screen._dirty_widgets or screen._compositor._dirty_regions:
        return False
    for other, (region, clip) in screen._compositor.visible_widgets.items():
        # Front to back: what comes before the widget lies over it.
        if other is widget:
            return clip.contains_region(region)
        if region.intersection(clip).overlaps(widget.region):
            return False
    return False
