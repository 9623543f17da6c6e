"""Writes changed lines straight to the terminal, past Textual's compositor, when nothing can be in the way.

The compositor keeps nothing of what the transcript paints, so whatever it repaints later agrees with this.
Uses private names of Textual 8.2.8, all of them here; where one is missing, the usual way is taken.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence

from rich.control import Control
from textual.strip import Strip
from textual.widget import Widget


def paint_directly(widget: Widget, lines: Sequence[int], strips: Sequence[Strip]) -> bool:
    """Paints these lines of `widget`. False where it may not: then the widget must be refreshed."""
    try:
        if not _is_clear(widget):
            return False
        region = widget.screen.find_widget(widget).region
        console = widget.app.console
        parts: list[str] = []
        for y in lines:
            parts.append(Control.move_to(region.x, region.y + y).segment.text)
            parts.append(strips[y].render(console))
        app, driver = widget.app, widget.app._driver
        assert driver is not None
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
        return False
    return True


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
