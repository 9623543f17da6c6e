"""Lines of any length: only the last row of one is broken again when more of it arrives."""

from rich.style import Style

from crushpy.tui.transcript.markdown.block import code_margin
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.text_row import TextRow
from crushpy.tui.transcript.render.wrap import chop, wrap

PORTION = 20_000
"""How much of a very long line is drawn at a time."""


class GrowingLine:
    """The rows of one line, as it grows or as there is time to draw it. Takes one line at a time."""

    def __init__(self, canvas: Canvas, margin: Margin, base: Style) -> None:
        self._canvas = canvas
        self._margins = {False: margin, True: code_margin(margin, canvas.palette)}
        self._styles = {False: base, True: canvas.palette.fence}
        self.forget()

    def forget(self) -> None:
        """The next line is another one."""
        self._code = False
        self._text = ""
        self._rows: list[TextRow] = []
        self._last = 0
        """Where the last row begins."""

    def rows(self, line: str, *, code: bool) -> list[TextRow]:
        """The rows of the line as it is now."""
        return self._grow(_spaced(line, code), code)

    def portion(self, line: str, *, code: bool) -> tuple[list[TextRow], bool]:
        """The rows of a portion more of it than was drawn before, and whether that is all."""
        text = _spaced(line, code)
        end = PORTION + (len(self._text) if code is self._code and text.startswith(self._text) else 0)
        return self._grow(text[:end], code), end >= len(text)

    def _grow(self, text: str, code: bool) -> list[TextRow]:
        if code is not self._code or not text.startswith(self._text):
            self.forget()
        margin, style = self._margins[code], self._styles[code]
        rest = text[self._last :]
        again = Canvas(self._canvas.palette, self._canvas.width)
        (again.code if code else again.prose)([[(rest, style)]], margin, style)
        if self._last:
            again.rows[0] = _later(again.rows[0], margin)
        self._rows[-1:] = again.rows
        self._last += (chop if code else wrap)(rest, again.room(margin))[-1].start
        self._text, self._code = text, code
        return self._rows


def _spaced(line: str, code: bool) -> str:
    """A line with its tabs as spaces."""
    return line.expandtabs(4) if code else line.replace("\t", "    ")


def _later(row: TextRow, margin: Margin) -> TextRow:
    """A first row, made to look like a later one."""
    segments = [*margin.rest, *row.segments[len(margin.first) :]]
    return TextRow(segments, row.fill, sum([len(segment.text) for segment in margin.rest]), row.end)
