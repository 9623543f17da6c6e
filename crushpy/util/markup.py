"""Reads Markdown and colours code, for the app and for pages. The libraries load when first used."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_INLINE_CHARS = 6_000
MAX_MARKS = {"[": 250, "!": 500, "<": 500, "*": 800, "_": 800, "~": 800, "`": 800, "&": 800, "\\": 2_000}
"""A paragraph with more of these is shown as it came: parsing it would take too long."""

_MARKED = re.compile(r"[\\`*_~\[\]<&]|https?://")
_URL = re.compile(r"https?://[^\s<>\"'`|\\^{}]+")
_ABSOLUTE = re.compile(r"(?:https?|ftp)://[!-~]+|mailto:[!-~]+", re.IGNORECASE)

ColouredPiece = tuple[str, str]
"""Some code and its role: a name of `styles.INLINE`, or empty."""
Coloured = list[list[ColouredPiece]]
"""Lines of pieces."""

MAX_CODE_CHARS = 120_000
MAX_LINE_CHARS = 1_000
"""Code that is larger or has longer lines is not coloured: some lexers are too slow for it."""

_ROLES = {
    "comment": ("Comment", "Literal.String.Doc"),
    "string": ("Literal.String", "Generic.Inserted"),
    "number": ("Literal.Number",),
    "keyword": ("Keyword", "Comment.Preproc", "Name.Tag", "Operator.Word"),
    "type": ("Keyword.Type", "Name.Class", "Name.Builtin", "Name.Variable"),
    "function": ("Name.Function", "Name.Decorator", "Name.Attribute"),
    "operator": ("Operator", "Generic.Deleted"),
}
"""The kinds of tokens with each role, by their names in pygments. The longest name that fits decides."""

_OTHER_NAMES = {"patch": "diff"}
"""Languages by names that pygments does not know."""

# --- Markdown ------------------------------------------------------------------------------------------


@cache
def markdown_parser() -> "MarkdownIt":
    """The one markdown parser. No HTML, and no references: a link must not depend on what comes later."""
    from markdown_it import MarkdownIt

    return (
        MarkdownIt("commonmark", {"html": False})
        .enable(["table", "strikethrough"])
        .disable(["reference", "html_block", "html_inline"])
    )


def parse_blocks(text: str) -> "list[Token]":
    """The blocks of a markdown text; the inline markdown in them is parsed by `inline_tokens`."""
    tokens: list[Token] = []
    markdown_parser().block.parse(text, markdown_parser(), {}, tokens)
    return tokens


def inline_tokens(text: str) -> "list[Token] | None":
    """The tokens of one paragraph. None if it is shown as it is: without marks, or too long to parse."""
    too_long = len(text) > MAX_INLINE_CHARS or any(
        text.count(mark) > most for mark, most in MAX_MARKS.items()
    )
    if too_long or not _MARKED.search(text):
        return None
    children: list[Token] = []
    markdown_parser().inline.parse(text, markdown_parser(), {}, children)
    return children


def is_absolute(address: str) -> bool:
    """Whether a link may lead there: a web, FTP or mail address."""
    return _ABSOLUTE.fullmatch(address) is not None


def bare_urls(text: str) -> Iterator[tuple[int, str]]:
    """The addresses in a text, and where they start."""
    for found in _URL.finditer(text):
        url = _without_tail(found[0])
        if url.isascii():
            yield found.start(), url


def _without_tail(url: str) -> str:
    """A bare address without the punctuation of the sentence around it."""
    url = url.rstrip(".,;:!?*_~")
    while url.endswith((")", "]")) and url.count(url[-1]) > url.count("(" if url[-1] == ")" else "["):
        url = url[:-1].rstrip(".,;:!?*_~")
    return url


# --- code ----------------------------------------------------------------------------------------------


def is_too_large(code: str) -> bool:
    return len(code) > MAX_CODE_CHARS or max(map(len, code.split("\n"))) > MAX_LINE_CHARS


def colour_code(language: str, code: str) -> Coloured | None:
    """The lines of some code; None if there is no lexer for it, or it fails."""
    with suppress(Exception):
        if lexer := _lexer(language):
            return _lines(lexer, code)
    return None


@cache
def _lexer(language: str) -> Any:
    """The lexer for a language's name or a file's name; None if there is none."""
    from pygments import lexers
    from pygments.util import ClassNotFound

    known: Any = lexers
    find: Any
    language = _OTHER_NAMES.get(language, language)
    try:
        find = known.get_lexer_for_filename if "." in language else known.get_lexer_by_name
        return find(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def _role(kind: str) -> str:
    names = [(name, role) for role, names in _ROLES.items() for name in names]
    found = [(len(name), role) for name, role in names if kind.startswith(f"Token.{name}")]
    return max(found, default=(0, ""))[1]


def _lines(lexer: Any, code: str) -> Coloured:
    """The lines of some code. Raises ValueError if the lexer adds or loses a character."""
    lines: Coloured = [[]]
    for kind, text in lexer.get_tokens(f"{code}\n"):  # some lexers need the line break
        first, *rest = text.split("\n")
        if first:
            lines[-1].append((first, _role(str(kind))))
        for line in rest:
            lines.append([(line, _role(str(kind)))] if line else [])
    if lines[-1] == []:
        lines.pop()  # after the line break that was added
    if "\n".join(["".join([text for text, _ in line]) for line in lines]) != code:
        raise ValueError("the code was changed")
    return lines
