"""The context strip: the model's window as one line, coloured by what fills it."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.context.inspect import FREE, WINDOW_PARTS
from crushpy.tui.terminal.terminal_features import is_ascii_only
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.render.styles import part_class
from crushpy.tui.widgets.status_bar import Reading

THRESHOLD, PREPARED = "threshold", "prepared"
SHRINK_S = 0.6
"""How long it takes to shrink after a compaction."""
COLOURED = dict.fromkeys(WINDOW_PARTS, "▀") | {FREE: "▔", THRESHOLD: "╵", PREPARED: "▘"}
SHADED = dict(zip(COLOURED, "█▒▓░█▒·│╌", strict=True))
"""Without colours. Neighbours differ."""
ASCII = dict(zip(COLOURED, "strec#.|-", strict=True))


def glyphs(*, coloured: bool = True) -> dict[str, str]:
    """The character of each part, and of what is free."""
    return ASCII if is_ascii_only() else COLOURED if coloured else SHADED


def part_style(part: str) -> str:
    """The name of its style in the transcript, and of the theme's variable."""
    return {THRESHOLD: "text", PREPARED: part_class("summary")}.get(part) or part_class(part)


def strip_cells(
    parts: Mapping[str, int], width: int, thresholds: Sequence[float] = (), *, prepared: bool = False
) -> list[str]:
    """What each of `width` cells shows, to scale: a part, free, or a threshold. The first part has a cell
    as soon as anything is used. With `prepared` the way to the threshold is marked."""
    window, so_far = sum(parts.values()), 0
    cells: list[str] = []
    for part, tokens in parts.items():
        so_far += tokens
        until = round(width * so_far / window) if window else 0
        cells += [part] * (max(until, 1 if tokens and not cells else 0) - len(cells))
    cells = [*cells, *[FREE] * (width - len(cells))][:width]
    marks = [min(width - 1, round(share * width)) for share in thresholds if width]
    for at in marks:
        cells[:at] = [PREPARED if prepared and part == FREE else part for part in cells[:at]]
        cells[at] = THRESHOLD
    return cells


def strip_spans(cells: Sequence[str], *, coloured: bool = True) -> tuple[tuple[str, str], ...]:
    """Cells as text, with the style of each run."""
    characters = glyphs(coloured=coloured)
    runs = [(part, len(list(run))) for part, run in groupby(cells)]
    return tuple((characters[part] * count, part_style(part)) for part, count in runs)


def draw_strip(cells: Sequence[str], *, coloured: bool) -> Content:
    spans = strip_spans(cells, coloured=coloured)
    return Content.assemble(
        *((text, "$foreground" if style == "text" else f"${style}") for text, style in spans)
    )


class ContextStrip(Widget):
    """The top edge of the prompt. Drawn again only if a figure changes: never while a reply streams in."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "ContextStrip { height: 1; background: $surface; }"

    reading: reactive[Reading] = reactive(Reading())
    level: reactive[float] = reactive(0.0)
    """Tokens that are drawn as used: more than there are while it shrinks."""

    def watch_reading(self, before: Reading, now: Reading) -> None:
        if now.used < before.used and now.window == before.window:
            self.animate("level", float(now.used), duration=SHRINK_S)
        else:
            self.level = float(now.used)

    @property
    def cells(self) -> list[str]:
        reading = self.reading
        leaving = max(0, min(round(self.level) - reading.used, reading.parts.get(FREE, 0)))
        parts = {**reading.parts, FREE: reading.parts.get(FREE, 0) - leaving}
        parts["tool output"] = parts.get("tool output", 0) + leaving
        prepared = bool(reading.preparation)
        return strip_cells(parts, self.size.width, reading.thresholds, prepared=prepared)

    def render(self) -> Content:
        return draw_strip(self.cells, coloured=not app_of(self).no_color)

    async def on_click(self, event: events.Click) -> None:
        """Opens the inspector at the part."""
        event.stop()
        await app_of(self).run_action(f"app.command('inspect', {self.cells[event.x]!r})")
