"""Text that comes in small pieces: many are joined to one, since each takes more room than the text in it.

What is joined stays short: in a text with one wide letter every letter is stored wide.
"""

from collections.abc import Iterable, Iterator

PIECES = 512
SHORT = 4_096
"""Characters from which on pieces are joined."""
LONG = 65_536
"""Up to so many characters a text is one; a longer one stays in the short ones it was joined to."""
BATCH = 200_000
"""Characters of a text of megabytes that are gone through in one go."""


class Pieces(list[str]):
    """A list of texts to be joined. Which piece ends where does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = 0
        """How many at the beginning are large already."""
        self._loose = 0
        """Characters of the others."""
        self.characters = 0
        """Of all that were appended."""

    def append(self, text: str) -> None:
        super().append(text)
        self.characters += len(text)
        self._loose += len(text)
        self._joined = min(self._joined, len(self) - 1)
        if self._loose >= SHORT or len(self) - self._joined > PIECES:
            text = "".join(self[self._joined :])
            end = _end_of_line_or_word(text, len(text) // 2, len(text))
            self[self._joined :] = _short_ones(text[:end])
            self._joined = len(self)
            self._loose = len(text) - end
            if self._loose:
                super().append(text[end:])

    @property
    def is_blank(self) -> bool:
        """True where there is nothing but blanks in it."""
        return all(not piece or piece.isspace() for piece in self)

    def whole(self) -> list[str]:
        """One text, or, where that would be very long, some that follow each other."""
        return list(self) if self.characters > LONG else ["".join(self)]


def _short_ones(text: str) -> Iterable[str]:
    """A text in parts; left whole where its letters take no more room together."""
    if text.isascii() or len(text) < 2 * SHORT:
        yield text
        return
    start = 0
    while len(text) - start >= 2 * SHORT:
        end = _end_of_line_or_word(text, start + SHORT // 2, start + SHORT)
        yield text[start:end]
        start = end
    yield text[start:]


def _end_of_line_or_word(text: str, first: int, last: int) -> int:
    """Where a text is best cut between these places."""
    return text.rfind("\n", first, last) + 1 or text.rfind(" ", first, last) + 1 or last


def batches_of_lines(text: str) -> Iterator[str]:
    """A text of megabytes in parts of whole lines, between which other threads run; others as they are."""
    start = 0
    while len(text) - start > 2 * BATCH and (end := text.find("\n", start + BATCH) + 1):
        yield text[start:end]
        start = end
    yield text[start:]
