"""Small helpers for text that is not markdown: clean lines, lines that must fit, lists."""

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.text_row import Span, TextRow
from crushpy.tui.transcript.render.wrap import cells, fit

PORTION = 65_536
"""Very long text is cleaned in portions of about this many characters."""


def lines_of(text: str) -> Iterator[str]:
    """The lines of foreign text, clean; a line break at the very end makes no empty line."""
    text = text.removesuffix("\n")
    start = 0
    while True:
        end = text.find("\n", start + PORTION)
        if end < 0:
            yield from clean(text[start:]).split("\n")
            return
        yield from clean(text[start : end + 1])[:-1].split("\n")
        start = end + 1


def tail_of(text: str, count: int) -> tuple[int, list[str]]:
    """The last `count` lines of foreign text, clean, and how many came before them."""
    text = text[-20_000:] if len(text) > 20_000 and count < 10 else text
    lines = text.rstrip("\n").split("\n")
    shown = [clean(line[:2_000]).replace("\n", " ").expandtabs(4) for line in lines[-count:]]
    return max(0, len(lines) - count), shown


def headline_row(
    spans: Sequence[Span], right: Sequence[Span], margin: Margin, canvas: Canvas, copied_from: int = 0
) -> TextRow:
    """One row that never breaks: `spans` cut to fit, then `right` where there is room for it.

    A copy of it leaves out the first `copied_from` spans.
    """
    room = canvas.room(margin)
    beside = sum([cells(text) for text, _ in right])
    left = sum([cells(text) for text, _ in spans])
    if beside and min(left, 12) + beside + 2 <= room:
        room -= beside + 2
    else:
        right = ()
    segments = list(margin.first)
    gutter = sum(
        [len(segment.text) for segment in (*segments, *[Segment(s[0]) for s in spans[:copied_from]])]
    )
    for text, style in spans:
        shown = fit(text, room)
        room -= cells(shown)
        if shown:
            segments.append(Segment(shown, style))
        if shown != text:
            break
    if right:
        segments.append(Segment("  ", canvas.palette.text))
        segments.extend([Segment(text, style) for text, style in right])
    return TextRow(segments, canvas.palette.text, gutter)


def listed(marker: str, text: str, canvas: Canvas, margin: Margin, mark_style: Style, style: Style) -> None:
    """A marker and text that is broken beside it."""
    blank = Segment(" " * cells(marker), canvas.palette.text)
    inside = margin.add(Segment(marker, mark_style), blank, copied=len(marker))
    canvas.prose([[(text, style)]], inside, canvas.palette.text)
