"""Turns the words of a parsed shell command into what the program would get: quotes and escapes removed."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from crushpy.permissions.shell.ast import Word

if TYPE_CHECKING:
    from tree_sitter import Node

_HIDDEN = "\0"
"""Stands for a quoted character where only unquoted ones matter."""
_SIMPLE_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[])")
_LITERAL_TOKENS = frozenset(
    ("$", "=", "==", "=~", "!=", "!", "[", "]", "-", "+", ":", "?", "@", "*", "#", "%")
)
_METACHARACTERS = " \t\n;&|<>()"
_BREAKS = tuple(bytes([letter]) for letter in b" \t\n;&|<>()`")
EXPANSIONS = frozenset(("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"))


class _Pieces:
    """A word in the making."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.bare: list[str] = []
        """The same text with quoted characters hidden."""
        self.head: str | None = None
        self.splits = False
        self.pattern = False

    def add(self, text: str, bare: str) -> None:
        self.text.append(text)
        self.bare.append(bare)

    def quoted(self, text: str) -> None:
        self.add(text, _HIDDEN * len(text))

    def unknown(self, source: str, *, splits: bool, head: str = "") -> None:
        if self.head is None:
            self.head = "".join(self.text) + head
        self.splits = self.splits or splits
        self.quoted(source)

    def word(self) -> Word:
        text, bare = "".join(self.text), "".join(self.bare)
        if self.head is not None:
            # An unquoted brace or glob beside a value can make several words of it.
            return Word(text, "unknown", self.head, self.splits or bool(re.search(r"[*?\[{]", bare)))
        names_files = self.pattern or re.search(r"^~|[=:]~|[*?\[]", bare)
        braces = re.search(r",|\.\.", bare[bare.find("{") : bare.rfind("}")]) if "{" in bare else None
        return Word(text, "pattern" if names_files or braces else "literal")


class WordReader:
    """Reads words out of `source`. `visit` is told each substitution, `fail` what cannot be read."""

    def __init__(self, source: bytes, visit: Callable[["Node"], None], fail: Callable[[str], None]) -> None:
        self._source = source
        self._visit = visit
        self._fail = fail

    def text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def read(self, node: "Node", before: bytes = b"") -> Word:
        """The word that `node` is. `before`: a character that may stand directly before it."""
        self._check_edges(node, before)
        return self.part(node)

    def part(self, node: "Node") -> Word:
        """Text that need not stand alone: inside `${...}`, a pattern of `[[`."""
        pieces = _Pieces()
        self._read(node, pieces)
        return pieces.word()

    def _check_edges(self, node: "Node", before: bytes) -> None:
        """A word ends where bash says: the parser cuts some in two and joins others over a line's end."""
        self.check_start(node, before)
        if self._source[node.end_byte : node.end_byte + 1] not in (b"", *_BREAKS):
            self._fail(f"`{self.text(node)[:40]}` is only part of a word")

    def check_start(self, node: "Node", before: bytes = b"") -> None:
        start = node.start_byte
        left = self._source[max(start - 1, 0) : start]
        escaped = self._source[max(start - 2, 0) : start].startswith(b"\\") and left != b"\n"
        if left not in (b"", before, *_BREAKS) or escaped:
            self._fail(f"`{self.text(node)[:40]}` is only part of a word")

    def _read(self, node: "Node", pieces: _Pieces) -> None:
        kind, source = node.type, self.text(node)
        if kind in EXPANSIONS:
            self._visit(node)
            pieces.unknown(source, splits=True)
        elif kind == "process_substitution":
            self._visit(node)
            pieces.unknown(source, splits=False, head="/dev/fd/")
        elif kind in ("concatenation", "command_name"):
            self._concatenation(node, pieces)
        elif kind == "string":
            self._string(node, pieces)
        elif kind == "raw_string":
            pieces.quoted(source[1:-1])
        elif kind == "ansi_c_string":
            self._ansi(source, pieces)
        elif kind in ("brace_expression", "extglob_pattern", "regex"):
            pieces.pattern = True
            self._plain(source, pieces)
            self._children(node)
        elif kind in ("word", "number", "variable_name", "special_variable_name", "test_operator"):
            if node.child_count:
                self._children(node)
                pieces.unknown(source, splits=True)
            else:
                self._plain(source, pieces)
        elif not node.is_named and source in _LITERAL_TOKENS:
            self._plain(source, pieces)
        else:
            self._fail(f"`{source[:40]}` cannot be read as a word")

    def _children(self, node: "Node") -> None:
        for child in node.children:
            self._read(child, _Pieces())

    def _concatenation(self, node: "Node", pieces: _Pieces) -> None:
        end = node.start_byte
        dollar = False
        for child in node.children:
            if child.start_byte != end or (dollar and child.type in ("string", "raw_string")):
                self._fail(f"`{self.text(node)[:40]}` cannot be read as one word")
            self._read(child, pieces)
            end = child.end_byte
            dollar = self.text(child).endswith("$")

    def _plain(self, source: str, pieces: _Pieces) -> None:
        if _SUBSTITUTION.search(source):
            self._fail(f"`{source[:40]}` hides a substitution")
        escaped = False
        for letter in source:
            if escaped:
                pieces.quoted(letter)
                escaped = False
            elif letter == "\\":
                escaped = True
            else:
                if letter in _METACHARACTERS:
                    self._fail(f"`{source[:40]}` is more than one word")
                pieces.add(letter, letter)
        if escaped:
            self._fail(f"`{source[:40]}` ends in a backslash")

    def _string(self, node: "Node", pieces: _Pieces) -> None:
        """A double-quoted string. Blanks between expansions are not in the tree, hence by position."""
        pieces.quoted("")
        end = node.start_byte + 1
        for child in node.children:
            if child.type == '"':
                continue
            self._quoted_text(end, child.start_byte, pieces)
            end = child.end_byte
            if child.type in EXPANSIONS:
                self._visit(child)
                pieces.unknown(self.text(child), splits="@" in self.text(child) or "*" in self.text(child))
            else:
                self._quoted_text(child.start_byte, end, pieces)
        self._quoted_text(end, node.end_byte - 1, pieces)

    def _quoted_text(self, start: int, end: int, pieces: _Pieces) -> None:
        source = self._source[start:end].decode(errors="replace")
        if _SUBSTITUTION.search(source):
            self._fail(f"`{source[:40]}` hides a substitution")
        pieces.quoted(re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), source))

    def _ansi(self, source: str, pieces: _Pieces) -> None:
        inside = source[2:-1]
        if re.fullmatch(r"(?:[^\\]|\\[nt\\'\"])*", inside):
            pieces.quoted(re.sub(r"\\(.)", lambda found: _SIMPLE_ANSI[found[1]], inside))
        else:
            pieces.unknown(source, splits=False)
