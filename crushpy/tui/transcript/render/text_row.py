"""One line of the transcript, drawn: styled pieces of text, and what of them is copied."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from crushpy.tui.transcript.render.wrap import WrappedLine, cells

Span = tuple[str, Style]
"""Text in one style, without line breaks and tabs."""


COPY = "copy"
"""Stands at the end of a code block's first row. It is drawn, and no part of the text."""


class TextRow:
    """A line. It becomes a `Strip` when it is first painted: most lines of a long item never are."""

    __slots__ = ("_strip", "end", "fill", "gutter", "segments")

    def __init__(self, segments: list[Segment], fill: Style, gutter: int = 0, end: str = "\n") -> None:
        self.segments = segments
        self.fill = fill
        """The style of what is left of the line."""
        self.gutter = gutter
        """How many characters at the left are decoration and not copied."""
        self.end = end
        """What a copy puts after it: a line break, or what stood where a longer line was broken."""
        self._strip: Strip | None = None

    @property
    def text(self) -> str:
        """All its characters, the gutter's too."""
        return "".join([segment.text for segment in self.segments])

    def same(self, other: "TextRow") -> bool:
        """It looks the same and copies the same."""
        return (
            self.segments == other.segments
            and self.gutter == other.gutter
            and self.end == other.end
            and self.fill == other.fill
        )

    def strip(self, width: int) -> Strip:
        """The line, exactly `width` cells wide. A row is only ever drawn for one width."""
        if self._strip is None:
            used = 0
            for segment in self.segments:
                used += cells(segment.text)
            segments = self.segments
            if used < width:
                segments = [*segments, *self._rest(width - used)]
            strip = Strip(segments, max(used, width))
            self._strip = strip.crop(0, width) if used > width else strip
        return self._strip

    def _rest(self, width: int) -> list[Segment]:
        mark = self.fill.meta.get("mark")
        if mark is None or width < len(COPY) + 3:
            return [Segment(" " * width, self.fill)]
        free = width - len(COPY) - 2
        return [
            Segment(" " * free, self.fill),
            Segment(COPY, self.fill + Style(color=mark, meta={"copy_code": True})),
            Segment("  ", self.fill),
        ]


def pieces(spans: Sequence[Span], cuts: Sequence[WrappedLine]) -> list[list[Segment]]:
    """The spans, whose texts put together were cut, as segments for each line."""
    lines: list[list[Segment]] = []
    if len(spans) == 1:
        text, style = spans[0]
        return [[Segment(text[cut.start : cut.end], style)] if cut.end > cut.start else [] for cut in cuts]
    index, begin = 0, 0
    for cut in cuts:
        line: list[Segment] = []
        while index < len(spans):
            text, style = spans[index]
            finish = begin + len(text)
            piece = text[max(0, cut.start - begin) : cut.end - begin]
            if piece and finish > cut.start:
                line.append(Segment(piece, style))
            if finish >= cut.end:
                break
            begin = finish
            index += 1
        lines.append(line)
    return lines
