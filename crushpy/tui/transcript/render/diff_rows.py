"""Draws a diff: unified, or side by side if there is room, with syntax colours."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePath
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from crushpy.core.messages import Diff, counted
from crushpy.security.sanitize import clean
from crushpy.tui.transcript.markdown.block import coloured_code
from crushpy.tui.transcript.render.canvas import (
    Canvas,
    Margin,
    Pending,
    TextRow,
    cells,
    fit,
    pieces,
    wrap,
)
from crushpy.tui.transcript.render.styles import Palette
from crushpy.util.markup import Coloured, ColouredPiece

MIN_COLUMNS_SIDE_BY_SIDE = 120
MIN_COLUMNS_FOR_NUMBERS = 50
MAX_DIFF_LINES = 3_000

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_STYLES = {"+": "added", "-": "removed", " ": "code", "@": "hunk"}


class DiffLine(NamedTuple):
    """A line of a diff. The sign is `+`, `-`, a space, or `@` between hunks."""

    sign: str
    text: str
    old: int = 0
    new: int = 0
    code: Sequence[ColouredPiece] = ()
    """The text with syntax colours, once they are known."""


class _Layout(NamedTuple):
    """How lines are drawn."""

    palette: Palette
    margin: Margin
    room: int
    numbers: int
    """Cells for a line number; 0 if there is no room for it."""


def draw_diff(diff: Diff, canvas: Canvas, margin: Margin) -> None:
    """Draws the diff; its syntax colours come later."""
    lines = list(read_diff(diff.unified))
    left_out = len(lines) - MAX_DIFF_LINES
    lines = lines[:MAX_DIFF_LINES]
    signs = {line.sign for line in lines}
    wide = canvas.width >= MIN_COLUMNS_SIDE_BY_SIDE and not (
        signs <= {"+", "@"} or signs <= {"-", "@"}
    )  # one half would be empty
    digits = len(str(max([max(line.old, line.new) for line in lines], default=0)))
    numbers = digits if canvas.width >= MIN_COLUMNS_FOR_NUMBERS else 0
    look = _Layout(canvas.palette, margin, canvas.room(margin), numbers)

    def rows(coloured: Sequence[Coloured] = ()) -> list[TextRow]:
        shown = list(_with_colours(lines, coloured)) if coloured else lines
        return list(_side_by_side(shown, look) if wide else _unified(shown, look))

    start = len(canvas.rows)
    canvas.rows.extend(rows())
    codes = tuple("\n".join([line.text for line in lines if line.sign in signs]) for signs in ("- ", "+ "))
    name = PurePath(diff.path).name
    if lines and name:
        canvas.pending.append(Pending(name, codes, start, len(canvas.rows) - start, rows))
    if left_out > 0:
        canvas.line(f"… {counted(left_out, 'more line')}", canvas.palette.muted, margin)


def shows_whole(diff: Diff) -> bool:
    """Whether `draw_diff` leaves nothing out."""
    return diff.unified.count("\n") < MAX_DIFF_LINES


def read_diff(unified: str) -> Iterator[DiffLine]:
    """The lines of unified diff text, without its file headers."""
    old = new = 0
    begun = False
    for raw in clean(unified).removesuffix("\n").split("\n"):
        hunk = _HUNK.match(raw)
        if hunk:
            if begun:
                yield DiffLine("@", "⋯")
            old, new, begun = int(hunk[1]), int(hunk[2]), True
            continue
        if not begun or raw.startswith("\\"):
            continue
        sign = raw[0] if raw.startswith(("+", "-")) else " "
        text = raw[1:].expandtabs(4)
        yield DiffLine(sign, text, 0 if sign == "+" else old, 0 if sign == "-" else new)
        old, new = old + (sign != "+"), new + (sign != "-")


def _with_colours(lines: Sequence[DiffLine], coloured: Sequence[Coloured]) -> Iterator[DiffLine]:
    """The lines with the colours of the old and of the new text."""
    old, new = map(iter, coloured)
    for line in lines:
        code = next(old) if line.sign in "- " else ()
        yield line._replace(code=next(new) if line.sign in "+ " else code)


def _unified(lines: Sequence[DiffLine], look: _Layout) -> Iterator[TextRow]:
    for line in lines:
        style = look.palette[_STYLES[line.sign]]
        for lead, part, after in _broken(line, line.new or line.old, look.room, look):
            head = [*look.margin.rest, lead]
            yield TextRow([*head, *part], style, sum([len(span.text) for span in head]), after)


def _side_by_side(lines: Sequence[DiffLine], look: _Layout) -> Iterator[TextRow]:
    width = (look.room - 3) // 2
    middle = Segment(" │ ", look.palette.rule)
    nothing = [Segment(" " * width, look.palette.text)], "\n"
    for left, right in _pairs(lines):
        old = _half(left, left.old, width, look) if left is not None else ()
        new = _half(right, right.new, width, look) if right is not None else ()
        for (before, _), (text, after) in zip_longest(old, new, fillvalue=nothing):
            lead = [*look.margin.rest, *before, middle]
            gutter = sum([len(span.text) for span in (*lead, text[0])])
            yield TextRow([*lead, *text], look.palette.text, gutter, after)


def _half(line: DiffLine, number: int, width: int, look: _Layout) -> Iterator[tuple[list[Segment], str]]:
    """One side of a line: rows of `width` cells, and what follows each in a copy."""
    style = look.palette[_STYLES[line.sign]]
    for lead, part, after in _broken(line, number, width, look):
        missing = width - sum([cells(segment.text) for segment in (lead, *part)])
        yield [lead, *part, Segment(" " * missing, style)], after


def _pairs(lines: Sequence[DiffLine]) -> Iterator[tuple[DiffLine | None, DiffLine | None]]:
    """Pairs of lines for the left and the right side: removed ones beside those added in their place."""
    removed: list[DiffLine] = []
    added: list[DiffLine] = []
    for line in lines:
        if line.sign == "-" and not added:
            removed.append(line)
        elif line.sign == "+":
            added.append(line)
        else:
            yield from zip_longest(removed, added)
            removed, added = ([line], []) if line.sign == "-" else ([], [])
            if line.sign != "-":
                yield line, line
    yield from zip_longest(removed, added)


def _broken(
    line: DiffLine, number: int, width: int, look: _Layout
) -> Iterator[tuple[Segment, list[Segment], str]]:
    """A line wrapped to `width` cells: number and sign, text, and what follows it in a copy."""
    name = {"+": "success", "-": "error"}.get(line.sign)
    colour = Style(color=look.palette[name].color) if name else look.palette.dim
    style = look.palette[_STYLES[line.sign]]
    gutter = look.palette.over(style, colour)
    spans = coloured_code(line.code or [(line.text, "")], look.palette, style)
    label = f"{number:>{look.numbers}} " if look.numbers and number else " " * (look.numbers + 1)
    sign = line.sign if line.sign in "+-" else " "
    lead = fit(f"{label}{sign} ", max(3, width // 2))
    cuts = wrap(line.text, width - cells(lead), words=False)
    for index, (part, cut) in enumerate(zip(pieces(spans, cuts), cuts, strict=True)):
        yield Segment(lead if index == 0 else " " * cells(lead), gutter), part, cut.after
