"""Draws one block of markdown, with emphasis, code and links: tokens of markdown-it go in, rows come out."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from crushpy.security.sanitize import clean, one_line
from crushpy.tui.transcript.render.canvas import (
    MIN_TEXT_CELLS,
    Canvas,
    Margin,
    Pending,
    Span,
    TextRow,
    cells,
    pieces,
    wrap,
)
from crushpy.tui.transcript.render.styles import BOLD, ITALIC, STRIKE, Palette
from crushpy.util.markup import Coloured, bare_urls, inline_tokens, is_absolute

if TYPE_CHECKING:
    from markdown_it.token import Token

_EMPHASIS = {"strong_open": BOLD, "em_open": ITALIC, "s_open": STRIKE}


def inline(text: str, palette: Palette, base: Style, *, breaks: bool = False) -> list[list[Span]]:
    """The spans of one paragraph, line by line: more than one if the text has hard breaks.

    With `breaks` every line of the text is a line.
    """
    tokens = inline_tokens(text)
    if tokens is None:
        return [[(_flat(line), base)] for line in (text.split("\n") if breaks else [text])]
    return _Inline(palette, base, breaks).read(tokens)


class _Inline:
    def __init__(self, palette: Palette, base: Style, breaks: bool) -> None:
        self._palette = palette
        self._base = base
        self._breaks = breaks
        self._styles = [base]
        self._href = ""
        self._label = ""
        self._lines: list[list[Span]] = [[]]

    def read(self, tokens: "list[Token]") -> list[list[Span]]:
        for token in tokens:
            match token.type:
                case "text" | "text_special":
                    self._text(clean(token.content))
                case "code_inline":
                    self._add(_flat(token.content), self._palette.over(self._style, "inline-code"))
                case "softbreak" if not self._breaks:
                    self._add(" ", self._style)
                case "softbreak" | "hardbreak":
                    self._lines.append([])
                case "strong_open" | "em_open" | "s_open":
                    self._styles.append(self._palette.over(self._style, _EMPHASIS[token.type]))
                case "strong_close" | "em_close" | "s_close":
                    self._styles.pop()
                case "link_open":
                    self._href, self._label = str(token.attrs.get("href", "")), ""
                    self._styles.append(self._linked(self._href))
                case "link_close":
                    self._styles.pop()
                    self._tell_target()
                case "image":
                    source = str(token.attrs.get("src", ""))
                    self._add(f"[image: {_flat(token.content) or source}]", self._linked(source))
                case _:
                    self._text(clean(token.content))
        return self._lines

    @property
    def _style(self) -> Style:
        return self._styles[-1]

    def _linked(self, href: str) -> Style:
        if not (href.isascii() and href.isprintable()) or " " in href:
            return self._style
        return self._palette.link(self._style, href, external=is_absolute(href))

    def _add(self, text: str, style: Style) -> None:
        if text:
            self._label += text
            self._lines[-1].append((text, style))

    def _text(self, text: str) -> None:
        text = _flat(text)
        if self._href:
            self._add(text, self._style)
            return
        start = 0
        for place, url in bare_urls(text):
            self._add(text[start:place], self._style)
            start = place + len(url)
            self._add(url, self._linked(url))
        self._add(text[start:], self._style)

    def _tell_target(self) -> None:
        """Adds the target of a link, unless its text is the target."""
        href, self._href = self._href, ""
        if self._label.strip() not in (href, href.removeprefix("mailto:")):
            self._add(f" ({_flat(clean(href))})", self._palette.over(self._base, self._palette.dim))


def _flat(text: str) -> str:
    """On one line, with tabs as spaces."""
    return text.replace("\n", " ").expandtabs(4) if "\n" in text or "\t" in text else text


MAX_NESTING = 16
"""Blocks nested deeper are shown as they came: the parser drops text beyond its own limit (20)."""


_BOXES = {"[ ] ": "☐ ", "[x] ": "☑ "}
"""How the items of a task list begin, and how they are drawn."""


def split_blocks(tokens: "Sequence[Token]") -> "Iterator[Sequence[Token]]":
    """The tokens of each of several blocks that follow each other."""
    start = 0
    for index, token in enumerate(tokens):
        if token.level == tokens[0].level and token.nesting <= 0:
            yield tokens[start : index + 1]
            start = index + 1


class Writer:
    """Draws blocks on a canvas, between `margin` and the right edge, in `base`."""

    def __init__(self, canvas: Canvas, margin: Margin, base: Style, *, breaks: bool = False) -> None:
        self._canvas = canvas
        self._palette = canvas.palette
        self._home = margin
        self._base = base
        self._breaks = breaks
        self._lines: Sequence[str] = ()

    def block(self, tokens: "Sequence[Token]", lines: Sequence[str]) -> None:
        """One top-level block, or one item of a list. The tokens' `map` counts in `lines`."""
        self._lines = lines
        if any(token.level > MAX_NESTING for token in tokens):
            spans = [token.map for token in tokens[:1] if token.map]
            self.plain(lines[spans[0][0] : spans[0][1]] if spans else lines)
            return
        self._blocks(tokens, self._home)

    def plain(self, lines: Sequence[str]) -> None:
        shown = [[(line.replace("\t", "    "), self._base)] for line in lines]
        self._canvas.prose(shown, self._home, self._base)

    def separate(self) -> None:
        self._canvas.blank(self._home.later, self._base)

    def code(self, lines: Sequence[str], margin: Margin, block: Sequence[str] | None = None) -> None:
        """Lines of code without colours; `block` has all lines, if these are the first ones of a block."""
        code = self._palette.code
        shown = [[(line.expandtabs(4), code)] for line in lines]
        self._canvas.code(shown, code_margin(margin, self._palette), code, block)

    def _code_block(self, content: str, language: str, margin: Margin) -> None:
        """A block of code, coloured later."""
        lines, start = content.removesuffix("\n").split("\n"), len(self._canvas.rows)
        self.code(lines, margin, lines)
        ask_for_colours(self._canvas, lines, language, code_margin(margin, self._palette), start)

    def _blocks(self, tokens: "Sequence[Token]", margin: Margin) -> None:
        """Blocks one below the other, with an empty row if the source has one."""
        for number, inside in enumerate(split_blocks(tokens)):
            if number and self._stands_apart(inside[0]):
                self._canvas.blank(margin, self._base)
            self._block(inside, margin)
            margin = margin.later

    def _block(self, tokens: "Sequence[Token]", margin: Margin) -> None:
        token = tokens[0]
        inner = tokens[1:-1]
        match token.type:
            case "paragraph_open":
                lines = inline(inner[0].content, self._palette, self._base, breaks=self._breaks)
                self._canvas.prose(lines, margin, self._base)
            case "heading_open":
                style = self._palette.over(self._base, f"h{min(int(token.tag[1:]), 3)}")
                self._canvas.prose(inline(inner[0].content, self._palette, style), margin, self._base)
            case "bullet_list_open" | "ordered_list_open":
                self._blocks(inner, margin)
            case "list_item_open":
                self._item(f"{token.info}{token.markup} " if token.info else "• ", inner, margin)
            case "blockquote_open":
                self._blocks(inner, self._nest(margin, Segment("▎ ", self._palette.rule)))
            case "fence":
                self._code_block(token.content, language_of(token.info), margin)
            case "code_block":
                self._code_block(token.content, "", margin)
            case "hr":
                line = "─" * min(self._canvas.room(margin), 40)
                self._canvas.prose([[(line, self._palette.rule)]], margin, self._base)
            case "table_open":
                span = token.map or [0, 0]
                self._table(tokens, self._lines[span[0] : span[1]], margin)
            case _:
                self._canvas.prose([[(one_line(token.content), self._base)]], margin, self._base)

    def _item(self, marker: str, inner: "Sequence[Token]", margin: Margin) -> None:
        box, inner = _ticked(inner)
        marker = marker.replace("• ", "") + box if box else marker
        style = self._palette.rule
        blank = Segment(" " * cells(marker), self._base)
        inside = self._nest(margin, Segment(marker, style), blank, copied=len(marker))
        if inner:
            self._blocks(inner, inside)
        else:
            self._canvas.prose([[("", self._base)]], inside, self._base)

    def _table(self, tokens: "Sequence[Token]", lines: Sequence[str], margin: Margin) -> None:
        """A table; as it came, which `lines` hold, if its columns do not fit."""
        rows = _table_rows(tokens, self._palette, self._base, self._canvas.room(margin))
        if rows is not None:
            self._canvas.code(rows, margin, self._base)
        else:
            shown = [[(line.strip().expandtabs(4), self._base)] for line in lines]
            self._canvas.prose(shown, margin, self._base)

    def _nest(
        self, margin: Margin, first: Segment, rest: Segment | None = None, *, copied: int = 0
    ) -> Margin:
        inside = margin.add(first, rest, copied=copied)
        if self._canvas.width - 1 - inside.width < MIN_TEXT_CELLS:
            return self._home.later.add(first, rest, copied=copied)
        return inside

    def _stands_apart(self, token: "Token") -> bool:
        """Whether the source has an empty line before this block."""
        if token.map is None or not 0 < token.map[0] <= len(self._lines):
            return False
        return not self._lines[token.map[0] - 1].strip(" \t>")


def language_of(info: str) -> str:
    """The language that the info string of a fence names."""
    words = one_line(info).lower().split()
    return words[0].strip("{}.") if words else ""


def code_margin(margin: Margin, palette: Palette) -> Margin:
    return margin.add(Segment(" ", palette.code))


def coloured_code(line: "Sequence[tuple[str, str]]", palette: Palette, base: Style) -> list[Span]:
    return [(text, palette.over(base, role) if role else base) for text, role in line] or [("", base)]


def ask_for_colours(canvas: Canvas, lines: Sequence[str], language: str, margin: Margin, start: int) -> None:
    """Requests syntax colours for the rows from `start` on, which show `lines`."""
    if not language or not lines:
        return
    palette, width = canvas.palette, canvas.width

    def redo(coloured: Sequence[Coloured]) -> Sequence[TextRow]:
        again = Canvas(palette, width)
        shown = [coloured_code(line, palette, palette.code) for line in coloured[0]]
        again.code(shown, margin, palette.code, copied)
        return again.rows

    copied = canvas.rows[start].code
    code = "\n".join([line.expandtabs(4) for line in lines])
    canvas.pending.append(Pending(language, (code,), start, len(canvas.rows) - start, redo))


def _ticked(inner: "Sequence[Token]") -> "tuple[str, Sequence[Token]]":
    """The box of an item of a task list, and what is left of the item; no box if it has none."""
    if len(inner) < 2 or inner[0].type != "paragraph_open" or inner[1].content[:4].lower() not in _BOXES:
        return "", inner
    words = inner[1].copy(content=inner[1].content[4:])
    return _BOXES[inner[1].content[:4].lower()], [inner[0], words, *inner[2:]]


# --- tables: columns as wide as their cells need, cells wrapped if there is not enough room

NARROWEST = 4
GAP = " │ "

Cell = list[Span]


def _table_rows(
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
        lines: list[list[Segment]] = pieces(cell, cuts) if cell else [[]]
        broken.append([[(part.text, part.style or base) for part in line] for line in lines])
    for parts in zip_longest(*broken, fillvalue=[]):
        line: list[Span] = []
        for spans, width, align in zip(parts, widths, aligns, strict=False):
            missing = max(0, width - sum([cells(text) for text, _ in spans]))
            before = {"right": missing, "center": missing // 2}.get(align, 0)
            gap = [(GAP, palette.rule)] if line else []
            line += [*gap, (" " * before, base), *spans, (" " * (missing - before), base)]
        yield line


def _widths(rows: list[list[Cell]], room: int) -> tuple[int, ...] | None:
    """A width for each column, or None if they cannot all have the least."""
    columns = len(rows[0])
    room -= len(GAP) * (columns - 1)
    if columns == 0 or columns * NARROWEST > room:
        return None
    widths = [1] * columns
    for row in rows:
        for column, cell in enumerate(row[:columns]):
            widths[column] = min(room, max(widths[column], sum([cells(text) for text, _ in cell])))
    for _ in range(sum(widths) - room):
        widths[widths.index(max(widths))] -= 1  # the widest give way first
    return tuple(widths)
