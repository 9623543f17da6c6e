"""Rows of the transcript, the canvas they are drawn on, wrapping, and helpers for plain text."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.render.highlight import Highlighter
from crushpy.tui.transcript.render.styles import Palette
from crushpy.util.markup import Coloured

_NARROW = re.compile(r"[ -~\u00a0-\u00ac\u00ae-\u02ff\u0370-\u0482\u2500-\u25fc\u2800-\u28ff]*")
"""Characters that take one cell each, for certain."""

MAX_PARTIAL_LINES = 12
"""If more lines changed, they are painted whole."""


class WrappedLine(NamedTuple):
    """One line of a longer text: its bounds, and what stood between it and the next one."""

    start: int
    end: int
    after: str


def cells(text: str) -> int:
    """How many cells `text` takes. Tabs and line breaks must be gone."""
    return len(text) if text.isascii() else cell_len(text)


def wrap(text: str, width: int, *, words: bool = True) -> list[WrappedLine]:
    """Lines of at most `width` cells, broken at spaces if there are any.

    Without `words` lines are as long as they can be: for code, where spaces mean something.
    """
    is_narrow = text.isascii() or _NARROW.fullmatch(text)
    return (_wrap_narrow if is_narrow else _wrap_wide)(text, max(1, width), words)


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1)}…" if width > 0 else ""


def _wrap_narrow(text: str, width: int, words: bool) -> list[WrappedLine]:
    cuts: list[WrappedLine] = []
    start, length = 0, len(text)
    while length - start > width:
        space = text.rfind(" ", start, start + width + 1) if words else -1
        if space <= start:
            cuts.append(WrappedLine(start, start + width, ""))
            start += width
        else:
            cuts.append(WrappedLine(start, space, " "))
            start = space + 1
    cuts.append(WrappedLine(start, length, "\n"))
    return cuts


def _wrap_wide(text: str, width: int, words: bool) -> list[WrappedLine]:
    cuts: list[WrappedLine] = []
    start = used = 0
    space = used_to_space = -1
    for begin, end, size in split_graphemes(text)[0]:
        if used + size > width and begin > start:
            if words and text[begin] == " ":
                cuts.append(WrappedLine(start, begin, " "))
                start, used = end, 0
            elif words and space > start:
                cuts.append(WrappedLine(start, space, " "))
                start, used = space + 1, used - used_to_space + size
            else:
                cuts.append(WrappedLine(start, begin, ""))
                start, used = begin, size
            space = used_to_space = -1
            continue
        used += size
        if words and text[begin] == " ":
            space, used_to_space = begin, used
    cuts.append(WrappedLine(start, len(text), "\n"))
    return cuts


Span = tuple[str, Style]
"""Text in one style, without line breaks and tabs."""


COPY = "copy"
"""The label at the end of a code block's first row. It is drawn, but is not part of the text."""


class TextRow:
    """One line. Its `Strip` is made when it is first painted: most lines of a long item are never visible."""

    __slots__ = ("_strip", "code", "end", "fill", "gutter", "segments")

    def __init__(self, segments: list[Segment], fill: Style, gutter: int = 0, end: str = "\n") -> None:
        self.segments = segments
        self.fill = fill
        """The style of the rest of the line."""
        self.gutter = gutter
        """How many characters at the left are decoration that is not copied."""
        self.end = end
        """What follows it in a copy: a line break, or the character at which a longer line was wrapped."""
        self.code: Sequence[str] | None = None
        """The lines of the code block that begins with it, as they were written; None if none does."""
        self._strip: Strip | None = None

    @property
    def text(self) -> str:
        """All its characters, including the gutter."""
        return "".join([segment.text for segment in self.segments])

    def strip(self, width: int) -> Strip:
        """The line, exactly `width` cells wide. A row is drawn for one width only."""
        if self._strip is None:
            segments, used = self.segments, sum([cells(segment.text) for segment in self.segments])
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
    """The spans, whose joined text was cut into lines, as segments for each line."""
    if len(spans) == 1:  # most lines, and the very long ones
        text, style = spans[0]
        return [[Segment(text[cut.start : cut.end], style)] if cut.end > cut.start else [] for cut in cuts]
    lines: list[list[Segment]] = []
    for cut in cuts:
        line: list[Segment] = []
        begin = 0
        for text, style in spans:
            piece = text[max(0, cut.start - begin) : max(0, cut.end - begin)]
            if piece:
                line.append(Segment(piece, style))
            begin += len(text)
        lines.append(line)
    return lines


MIN_TEXT_CELLS = 8
"""Cells for text, however deep it is nested."""
MAX_PROSE_COLUMNS = 110
"""Longer lines of prose are hard to read, however wide the terminal is."""


class Pending(NamedTuple):
    """Rows of code that are drawn again once their colours are known; their number does not change."""

    language: str
    codes: tuple[str, ...]
    start: int
    height: int
    redo: Callable[[Sequence[Coloured]], Sequence[TextRow]]


class Margin(NamedTuple):
    """The left margin of a block: of its first row, and of all others."""

    first: tuple[Segment, ...]
    rest: tuple[Segment, ...]
    copied: int = 0
    """How many characters at the end of `first` are copied with the text: the marker of a list."""

    @property
    def width(self) -> int:
        return sum([cells(segment.text) for segment in self.rest])

    @property
    def first_length(self) -> int:
        """Characters of the first row's margin."""
        return sum([len(segment.text) for segment in self.first])

    @property
    def later(self) -> "Margin":
        return Margin(self.rest, self.rest)

    def add(self, first: Segment, rest: Segment | None = None, *, copied: int = 0) -> "Margin":
        return Margin((*self.first, first), (*self.rest, rest or first), copied)


class Canvas:
    """Collects rows for one width and one palette."""

    def __init__(self, palette: Palette, width: int, depth: int = 0, *, focused: bool = False) -> None:
        self.palette = palette
        self.width = width
        self.depth = depth
        """How many branches deep it is drawn: indented."""
        self.focused = focused
        """Whether keys act on what is drawn: details are shown."""
        self.rows: list[TextRow] = []
        self.pending: list[Pending] = []

    def room(self, margin: Margin) -> int:
        """Cells to the right of `margin`, without the last column, which belongs to the scrollbar."""
        return max(MIN_TEXT_CELLS, self.width - 1 - margin.width)

    def blank(self, margin: Margin, fill: Style) -> None:
        self.rows.append(TextRow(list(margin.rest), fill, margin.later.first_length))

    def prose(
        self, lines: Sequence[Sequence[Span]], margin: Margin, fill: Style, columns: int = MAX_PROSE_COLUMNS
    ) -> None:
        """Lines of spans, each wrapped at spaces if it is too long."""
        room = min(self.room(margin), max(MIN_TEXT_CELLS, columns - margin.width))
        self._put(lines, margin, fill, lambda text: wrap(text, room))

    def code(
        self, lines: Sequence[Sequence[Span]], margin: Margin, fill: Style, code: Sequence[str] | None = None
    ) -> None:
        """Lines of spans, each broken at the right edge; `code` is what a click on the first row copies."""
        start, room = len(self.rows), self.room(margin)
        self._put(lines, margin, fill, lambda text: wrap(text, room, words=False))
        if code is not None and len(self.rows) > start:
            self.rows[start].fill, self.rows[start].code = self.palette.fence_head, code

    def _put(
        self,
        lines: Sequence[Sequence[Span]],
        margin: Margin,
        fill: Style,
        cut: Callable[[str], list[WrappedLine]],
    ) -> None:
        lead, gutter = margin.first, margin.first_length - margin.copied
        later_gutter = margin.later.first_length
        for spans in lines:
            cuts = cut(spans[0][0] if len(spans) == 1 else "".join([text for text, _ in spans]))
            for segments, part in zip(pieces(spans, cuts), cuts, strict=True):
                self.rows.append(TextRow([*lead, *segments], fill, gutter, part.after))
                lead, gutter = margin.rest, later_gutter

    def line(self, text: str, style: Style, margin: Margin) -> None:
        """Text in one style, wrapped if it is too long."""
        self.prose([[(text, style)]], margin, self.palette.text)

    def headline(
        self, spans: Sequence[Span], margin: Margin, right: Sequence[Span] = (), copied_from: int = 0
    ) -> None:
        """One row that is never wrapped: `spans`, truncated to fit, then `right` if there is room.

        A copy leaves out the first `copied_from` spans.
        """
        room = self.room(margin)
        beside = sum([cells(text) for text, _ in right])
        left = sum([cells(text) for text, _ in spans])
        if beside and min(left, 12) + beside + 2 <= room:
            room -= beside
        else:
            right = ()
        gutter = margin.first_length + sum([len(text) for text, _ in spans[:copied_from]])
        segments = list(margin.first)
        for text, style in spans:
            shown = fit(text, room)
            room -= cells(shown)
            if shown:
                segments.append(Segment(shown, style))
            if shown != text:
                break
        segments.extend([Segment(text, style) for text, style in right])
        self.rows.append(TextRow(segments, self.palette.text, gutter))

    def padded(self, text: str, style: Style, margin: Margin) -> None:
        """One row of printed text on the background of code; never wrapped."""
        fill = self.palette.code
        inside = margin.add(Segment(" ", fill))
        shown = Segment(fit(text, self.room(inside)), fill + Style(color=style.color))
        self.rows.append(TextRow([*inside.first, shown], fill, inside.first_length))

    def listed(self, marker: str, text: str, margin: Margin, mark_style: Style, style: Style) -> None:
        """A marker with untrusted text at its right, line by line; long lines are wrapped."""
        blank = Segment(" " * cells(marker), self.palette.text)
        inside = margin.add(Segment(marker, mark_style), blank, copied=len(marker))
        lines = [[(line.expandtabs(4), style)] for line in lines_of(text)]
        self.prose(lines, inside, self.palette.text)

    def ask_for_colours(self, highlighter: Highlighter, wanted: Callable[[], bool]) -> None:
        """Requests the colours of pending code, which is drawn again once they are known."""
        asked, self.pending = self.pending, []
        for pending in asked:

            def done(coloured: Sequence[Coloured] | None, pending: Pending = pending) -> None:
                rows = pending.redo(coloured) if coloured is not None and wanted() else ()
                if len(rows) == pending.height:
                    self.rows[pending.start : pending.start + pending.height] = rows

            highlighter.request(pending.language, pending.codes, done)


# --- text that is not markdown --------------------------------------------------------------------------

SANITIZE_CHARS = 65_536
"""Very long text is sanitized in pieces of about this size."""


def lines_of(text: str) -> Iterator[str]:
    """The lines of untrusted text, sanitized; a line break at the end does not add an empty line."""
    text = text.removesuffix("\n")
    start = 0
    while True:
        end = text.find("\n", start + SANITIZE_CHARS)
        if end < 0:
            yield from clean(text[start:]).split("\n")
            return
        yield from clean(text[start : end + 1])[:-1].split("\n")
        start = end + 1


def tail_of(text: str, count: int) -> tuple[int, list[str]]:
    """The last `count` lines of untrusted text, sanitized, and the number of lines before them."""
    text = text[-20_000:] if len(text) > 20_000 and count < 10 else text
    lines = text.rstrip("\n").split("\n")
    shown = [clean(line[:2_000]).replace("\n", " ").expandtabs(4) for line in lines[-count:]]
    return max(0, len(lines) - count), shown


# --- what to paint again ----------------------------------------------------------------------------------


def changed_regions(before: Sequence[Strip | None], after: Sequence[Strip]) -> list[Region]:
    """Where lines differ from those painted before (None: not known). Of each line up to its last difference,
    because Textual paints from the beginning. If many lines differ, everything between them."""
    changed = [y for y, strip in enumerate(after) if y >= len(before) or strip != before[y]]
    if len(changed) > MAX_PARTIAL_LINES:
        return [Region(0, changed[0], after[0].cell_length, changed[-1] - changed[0] + 1)]
    return [
        Region(0, y, _changed_cells(before[y] if y < len(before) else None, after[y]), 1) for y in changed
    ]


def _changed_cells(before: Strip | None, after: Strip) -> int:
    """Up to which cell a line differs."""
    width = after.cell_length
    if before is None or before.cell_length != width:
        return width
    for old, new in zip(reversed([*before]), reversed([*after]), strict=False):
        if old != new:
            blanks = [len(text) - len(text.rstrip(" ")) for text in (old.text, new.text)]
            return width - min(blanks) if old.style == new.style else width
        width -= new.cell_length
    return width
