"""Markdown tables: columns as wide as their cells need, cells wrapped if there is not enough room."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.style import Style

from crushpy.tui.transcript.markdown.inline import inline
from crushpy.tui.transcript.render.canvas import Span, pieces
from crushpy.tui.transcript.render.styles import BOLD, Palette
from crushpy.tui.transcript.render.wrap import cells, wrap

if TYPE_CHECKING:
    from markdown_it.token import Token

NARROWEST = 4
GAP = " │ "

Cell = list[Span]


def table_rows(
    tokens: "Sequence[Token]", palette: Palette, base: Style, room: int
) -> list[list[Span]] | None:
    """The lines of the table that `tokens` hold; None if its columns do not fit."""
    rows: list[list[Cell]] = []
    aligns: list[str] = []
    head = True
    for token in tokens:
        match token.type:
            case "tr_open":
                rows.append([])
            case "th_open":
                aligns.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
            case "thead_close":
                head = False
            case "inline":
                style = palette.over(base, BOLD) if head else base
                lines = inline(token.content, palette, style)
                rows[-1].append([span for line in lines for span in (*line, (" ", style))][:-1])
            case _:
                pass
    widths = _widths(rows, room)
    if widths is None:
        return None
    header, *others = [list(_row(row, widths, aligns, palette, base)) for row in rows]
    rule: list[Span] = [("─┼─".join(["─" * width for width in widths]), palette.rule)]
    return [*header, rule, *(line for row in others for line in row)]


def _row(
    row: list[Cell], widths: Sequence[int], aligns: Sequence[str], palette: Palette, base: Style
) -> Iterator[list[Span]]:
    broken: list[list[list[Span]]] = []
    for cell, width in zip(row, widths, strict=False):
        cuts = wrap("".join([text for text, _ in cell]), width)
        broken.append(
            [[(part.text, part.style or base) for part in line] for line in pieces(cell, cuts)]
            if cell
            else [[]]
        )
    for number in range(max(map(len, broken), default=0)):
        line: list[Span] = []
        for column, cell in enumerate(broken):
            if column:
                line.append((GAP, palette.rule))
            spans = cell[number] if number < len(cell) else []
            line.extend(_padded(spans, widths[column], aligns[column], base))
        yield line


def _padded(spans: list[Span], width: int, align: str, base: Style) -> list[Span]:
    missing = width - sum([cells(text) for text, _ in spans])
    if missing <= 0:
        return spans
    before = {"right": missing, "center": missing // 2}.get(align, 0)
    left: list[Span] = [(" " * before, base)] if before else []
    right: list[Span] = [(" " * (missing - before), base)] if missing > before else []
    return [*left, *spans, *right]


def _widths(rows: list[list[Cell]], room: int) -> tuple[int, ...] | None:
    """A width for each column, or None if they cannot all have the least."""
    columns = len(rows[0])
    room -= len(GAP) * (columns - 1)
    if columns == 0 or columns * NARROWEST > room:
        return None
    widths = [1] * columns
    for row in rows:
        for column, cell in enumerate(row[:columns]):
            widths[column] = max(widths[column], sum([cells(text) for text, _ in cell]))
    excess = sum(widths) - room
    while excess > 0:
        # The widest give way first, down to the next widest.
        tallest = max(widths)
        wide = [column for column, width in enumerate(widths) if width == tallest]
        below = max([width for width in widths if width < tallest], default=0)
        step = min(tallest - max(below, NARROWEST), -(-excess // len(wide)))
        for column in wide[: max(1, min(len(wide), excess))]:
            widths[column] -= max(1, step)
        excess = sum(widths) - room
    return tuple(widths)
