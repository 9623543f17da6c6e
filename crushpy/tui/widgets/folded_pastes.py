"""Pastes too large to show: a short mark stands in the prompt, the text waits here until it is sent."""

import re
from collections.abc import Iterator

from crushpy.security.sanitize import clean

MAX_LINES = 10
MAX_CHARS = 1_000
"""A paste of more than either is folded to a mark."""
MAX_SHOWN = 20_000
"""Characters a prompt may hold unfolded, however they came in: beyond that each key would be felt."""

_MARK = r"\[pasted [\d,]+ (?:lines|characters) #(\d+)\]"
"""Compiled when first used: the prompt must be there soon."""
_PIECE = 64_000


def plain_breaks(text: str) -> str:
    """`text` with every line break as a line feed: terminals paste carriage returns."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def too_large(text: str) -> bool:
    return len(text) > MAX_CHARS or line_count(text) > MAX_LINES


class Folded:
    """One text behind a mark. It may be megabytes: it is cleaned when there is time, or when it is needed."""

    def __init__(self, number: int, raw: str) -> None:
        size = line_count(raw)
        counted = f"{size:,} lines" if size > 1 else f"{len(raw):,} characters"
        self.mark = f"[pasted {counted} #{number}]"
        self._raw = raw
        self._text = raw if _harmless(raw) else None

    @property
    def waits(self) -> bool:
        """Whether `text` still has work to do."""
        return self._text is None

    @property
    def text(self) -> str:
        """The text, clean. Safe to ask for in a thread, where it never holds the interpreter for long."""
        if self._text is None:
            self._text = "".join(clean(piece) for piece in _pieces(self._raw))
        return self._text


class Pastes:
    """The folded texts of one draft. They stay as long as it does, so that undo can bring a mark back."""

    def __init__(self) -> None:
        self._folded: dict[int, Folded] = {}

    def fold(self, text: str) -> Folded:
        """Keeps `text`; its mark goes into the prompt."""
        for folded in self._folded.values():
            if not folded.waits and folded.text == text:
                return folded
        number = len(self._folded) + 1
        self._folded[number] = Folded(number, text)
        return self._folded[number]

    def expand(self, text: str) -> str:
        """`text` with what its marks stand for."""
        return re.sub(_MARK, self._meant, text) if self._folded else text

    def admit(self, text: str) -> str:
        """`text` as a prompt can show it: what is folded already, or is too much, as marks."""
        text = plain_breaks(text)
        for folded in self._folded.values():
            if folded.text:
                text = text.replace(folded.text, folded.mark)
        if len(text) > MAX_SHOWN:
            return self.fold(self.expand(text)).mark
        return clean(text)

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where the marks stand in a line: start and end of each."""
        if not self._folded or "[pasted " not in line:
            return []
        return [match.span() for match in re.finditer(_MARK, line) if self._known(match)]

    def clear(self) -> None:
        self._folded.clear()

    def _known(self, match: "re.Match[str]") -> bool:
        folded = self._folded.get(int(match[1]))
        return folded is not None and folded.mark == match[0]

    def _meant(self, match: "re.Match[str]") -> str:
        """What a mark stands for; what only looks like one is the user's own words."""
        return self._folded[int(match[1])].text if self._known(match) else match[0]


def _harmless(text: str) -> bool:
    # Five megabytes in a few milliseconds; the sanitiser itself takes ten times as long.
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _pieces(text: str) -> Iterator[str]:
    """Cuts `text` after line breaks, which no escape sequence crosses, where there are any."""
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _PIECE) + 1
        end = end if end > start else start + _PIECE
        yield text[start:end]
        start = end
