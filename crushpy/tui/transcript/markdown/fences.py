"""A fence of code, line by line: inside it nothing is parsed, only its end is looked for."""

import re

from crushpy.tui.transcript.markdown.block import language_of

_OPENING = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")


class Fence:
    """A fence that is open."""

    def __init__(self, opening: str, start: int, *, goes_on: bool = False) -> None:
        """`opening` is its first line, as the parser found it; `start` the row where its code begins.
        `goes_on`: code of it stands before that."""
        found = _OPENING.match(opening)
        assert found is not None
        marker = re.escape(found[2][0])
        self._closing = re.compile(rf" {{0,3}}{marker}{{{len(found[2])},}}[ \t]*")
        self._indent = len(found[1])
        self.language = language_of(found[3])
        self.start = start
        self.goes_on = goes_on
        self.lines: list[str] = []

    def take(self, line: str) -> bool:
        """Adds a line of code, without the indentation of the fence. False where the line ends it."""
        if self._closing.fullmatch(line):
            return False
        spaces = len(line) - len(line.lstrip(" "))
        self.lines.append(line[min(spaces, self._indent) :].expandtabs(4))
        return True
