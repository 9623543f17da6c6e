"""Markdown inside a paragraph: emphasis, code, links. Text goes in, styled spans come out."""

import re
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from rich.style import Style

from crushpy.security.sanitize import clean
from crushpy.tui.transcript.render.canvas import Span
from crushpy.tui.transcript.render.styles import BOLD, ITALIC, STRIKE, Palette

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_INLINE_CHARS = 6_000
MAX_MARKS = {"[": 250, "!": 500, "<": 500, "*": 800, "_": 800, "~": 800, "`": 800, "&": 800, "\\": 2_000}
"""A paragraph with more of these is shown as it came: parsing it would take too long."""

_MARKED = re.compile(r"[\\`*_~\[\]<&]|https?://")
_URL = re.compile(r"https?://[^\s<>\"'`|\\^{}]+")
_ABSOLUTE = re.compile(r"(?:https?|ftp)://[!-~]+|mailto:[!-~]+", re.IGNORECASE)


@cache
def parser() -> "MarkdownIt":
    """The one markdown parser. No HTML, and no references: a link must not depend on what comes later."""
    from markdown_it import MarkdownIt

    return (
        MarkdownIt("commonmark", {"html": False})
        .enable(["table", "strikethrough"])
        .disable(["reference", "html_block", "html_inline"])
    )


def load_parser() -> None:
    """Loads the parser in a thread, so that the first reply need not wait for it."""
    Thread(target=parser, daemon=True).start()


def inline(text: str, palette: Palette, base: Style, *, breaks: bool = False) -> list[list[Span]]:
    """The spans of one paragraph, line by line: more than one if the text has hard breaks.

    With `breaks` every line of the text is a line.
    """
    if not _MARKED.search(text) or _is_too_complex(text):
        return [[(_flat(line), base)] for line in (text.split("\n") if breaks else [text])]
    children: list[Token] = []
    parser().inline.parse(text, parser(), {}, children)
    return _Inline(palette, base, breaks).read(children)


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
                case "strong_open":
                    self._styles.append(self._palette.over(self._style, BOLD))
                case "em_open":
                    self._styles.append(self._palette.over(self._style, ITALIC))
                case "s_open":
                    self._styles.append(self._palette.over(self._style, STRIKE))
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
        return self._palette.link(self._style, href, external=_ABSOLUTE.fullmatch(href) is not None)

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
        for found in _URL.finditer(text):
            url = _without_tail(found[0])
            if not url.isascii():
                continue
            self._add(text[start : found.start()], self._style)
            start = found.start() + len(url)
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


def _without_tail(url: str) -> str:
    """A bare address without the punctuation of the sentence around it."""
    url = url.rstrip(".,;:!?*_~")
    while url.endswith((")", "]")) and url.count(url[-1]) > url.count("(" if url[-1] == ")" else "["):
        url = url[:-1].rstrip(".,;:!?*_~")
    return url


def _is_too_complex(text: str) -> bool:
    return len(text) > MAX_INLINE_CHARS or any(text.count(mark) > most for mark, most in MAX_MARKS.items())
