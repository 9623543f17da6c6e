"""The window over time: the tokens of each request as an area, what was cached, fresh starts, threshold."""

from collections.abc import Sequence

from textual.content import Content

from crushpy.context.requests_made import RequestMade
from crushpy.tui.widgets.status_bar import short

EIGHTHS = " ▁▂▃▄▅▆▇█"
CACHED = "▒"
MARK = "▼"
LINE = "╌"
AXIS = 7
"""Columns at the left for the figures."""
LEAST_HEIGHT = 3
WIDEST = 6
"""Columns that one request takes at most."""


def window_chart(
    requests: Sequence[RequestMade], window: int, width: int, height: int, threshold: float | None = None
) -> Content:
    """`height` rows of area, a row of marks above it and one of words below. Empty where nothing was sent."""
    columns = _columns(requests, max(1, width - AXIS))
    if not columns or window <= 0 or height < LEAST_HEIGHT:
        return Content("")
    top = max(window, *(column.tokens for column in columns))
    limit = round(threshold * window / top * height) if threshold is not None else -1
    marks = "".join(MARK if column.opens else " " for column in columns)
    rows = [Content.assemble(" " * AXIS, (marks, "$accent"))]
    for level in range(height, 0, -1):
        label = short(top) if level == height else "0" if level == 1 else ""
        pieces = [_cell(column, level, top, height, line=level == limit) for column in columns]
        rows.append(Content.assemble((f"{label:>{AXIS - 1}} ", "$text-muted"), *_runs(pieces)))
    words = f"{len(requests)} requests · {CACHED} cached · {MARK} fresh start"
    words += f" · {LINE} threshold {threshold:.0%}" if threshold is not None else ""
    rows.append(Content.styled(f"{'':{AXIS}}{words}"[:width], "$text-muted"))
    return Content("\n").join(rows)


def _cell(column: RequestMade, level: int, top: int, height: int, *, line: bool) -> tuple[str, str]:
    """One character of the area and its style."""
    filled = column.tokens / top * height - (level - 1)
    if filled <= 0:
        return (LINE, "$warning") if line else (" ", "")
    if column.cached / top * height >= level:
        return CACHED, "$success"
    return EIGHTHS[max(1, min(8, round(filled * 8)))], "$accent"


def _runs(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbours of one style as one piece."""
    runs: list[tuple[str, str]] = []
    for text, style in pieces:
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + text, style)
        else:
            runs.append((text, style))
    return runs


def _columns(requests: Sequence[RequestMade], width: int) -> list[RequestMade]:
    """A column for each request; where there are more, one for the fullest of a few."""
    many = len(requests)
    if many <= width:
        wide = min(WIDEST, width // max(1, many))
        return [
            RequestMade(one.tokens, one.cached, one.opens and place == 0)
            for one in requests
            for place in range(wide)
        ]
    found: list[RequestMade] = []
    for column in range(width):
        some = requests[column * many // width : (column + 1) * many // width]
        fullest = max(some, key=lambda one: one.tokens)
        found.append(RequestMade(fullest.tokens, fullest.cached, any(one.opens for one in some)))
    return found
