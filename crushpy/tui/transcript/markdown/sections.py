"""Cuts a long markdown text into sections, each of which can be drawn by itself, from the text alone.

A cut is best made where nothing goes on; in a very long list, table, fence, paragraph or line it is made
inside, and the section behind it knows how it opens. What is decided at a line depends only on what came
before it, so a text is cut in the same places however it arrived.
"""

import re
from typing import NamedTuple

from crushpy.core.messages import Data
from crushpy.tui.transcript.markdown.units import TABLE_HEAD, is_blank, units_of

SHORT = 6_000
"""Characters from which on a section ends where nothing goes on."""
FULL = 8_000
"""From here on also between two items, rows or lines of code, and inside a long line."""
LONGEST = 16_000
"""And from here on between any two lines."""
LONG_LINE = 4_000
"""A line longer than this (in characters) is a unit of its own and shown as it came."""
LARGE_UNIT = 8_000
"""A unit larger than this is shown as it came, up to the next empty line."""

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`\n]*(?:\n|$))|~{3,})([^\n]*)")
_FREE = re.compile(r"\n[ \t\r]*\n(?=[^ \t\r\n])|\n(?=#{1,6}[ \t])")
"""Behind it stands a line with which something new begins."""
_HEADING = re.compile(r"#{1,6}[ \t]")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t]+[^\s*+-])")
_DELIMITER = re.compile(r"^ {0,3}(?=[^\n]*\|)(?=[^\n]*-)[ \t:|-]+$", re.MULTILINE)
_NO_ROW = re.compile(r"^(?![^\n|]*\|)|^(?: {4}|\t| {0,3}(?:[>#]|[-*+][ \t]|\d{1,9}[.)][ \t]))", re.MULTILINE)
"""Ends a table, or might: a line without a column, and one that begins another block."""
_INDENTED_ITEM = re.compile(r" *(?:[-*+]|\d{1,9}[.)])[ \t]+")


class Opening(Data, frozen=True):
    """What a section goes on with; nothing where it begins with a block of its own."""

    apart: bool = False
    """An empty row stands before it."""
    item: bool = False
    """An item of the list before it."""
    fence: str = ""
    """Code; this is the first line of its fence."""
    table: tuple[str, ...] = ()
    """Rows of a table; these are its first lines, which decide how wide its columns are."""
    plain: bool = False
    """A unit that is shown as it came."""
    line: bool = False
    """The rest of a line."""


WHOLE = Opening()
"""Of a text that goes on with nothing."""


class TextSection(NamedTuple):
    """A section that is complete."""

    text: str
    opening: Opening
    broken: bool
    """It ends inside a line."""


class SectionCutter:
    """Takes the text as it comes. What is not cut off yet is `text`, and opens as `opening` says."""

    def __init__(self, opening: Opening = WHOLE) -> None:
        self.text = ""
        self.opening = opening
        self._start = 0
        """Where the section begins in `text`; 0 but for the time in which it is fed."""
        self._next = 0
        """The line that is looked at next."""
        self._fence = opening.fence
        self._fenced = 0
        """Up to here fences were looked for."""

    @property
    def section(self) -> TextSection:
        """The last section, as far as it has come."""
        return TextSection(self.text, self.opening, broken=False)

    def feed(self, more: str) -> list[TextSection]:
        """More text; gives the sections that are complete now."""
        self.text += more
        done: list[TextSection] = []
        while len(self.text) - self._start > SHORT and (cut := self._cut()) is not None:
            end, opening = cut
            done.append(TextSection(self.text[self._start : end], self.opening, opening.line))
            self._start, self.opening = end, opening
        if done:
            self._next -= self._start
            self._fenced -= self._start
            self.text, self._start = self.text[self._start :], 0
        return done

    def _cut(self) -> tuple[int, Opening] | None:
        """Where the section ends, and how the next one opens; None where that is not known yet."""
        text, full = self.text, self._start + FULL
        self._next = max(self._next, self._start + SHORT)
        while self._next < full and (free := _FREE.search(text, self._next - 1, full)) is not None:
            line = free.end()
            if text.find("\n", line) < 0 and len(text) - line <= LONG_LINE:
                return None
            self._look_for_fences(line)
            if not self._fence:
                return line, Opening(apart=True)
            self._next = line + 1
        if len(text) <= full:
            return None
        if self._next <= full:
            self._next = text.rfind("\n", self._start, full) + 1 or self._start
        return self._cut_anywhere()

    def _cut_anywhere(self) -> tuple[int, Opening] | None:
        """The same from the line on in which the section becomes long."""
        text, start = self.text, self._start
        while True:
            line = self._next
            end = text.find("\n", line)
            most = max(start + FULL, line + LONG_LINE + 500)
            if end < 0 and len(text) <= most:
                return None
            if line - start >= FULL and (opening := self._opening(line)) is not None:
                return line, opening
            if end < 0 or end > most:
                return self._inside(line, most)
            self._next = end + 1

    def _inside(self, line: int, most: int) -> tuple[int, Opening]:
        """Where a long line is cut: behind a space where there is one near."""
        self._look_for_fences(line)
        end = self.text.rfind(" ", most - 200, most) + 1 or most
        self._next = end
        return end, Opening(fence=self._fence, plain=self._is_plain(line), line=True)

    def _opening(self, line: int) -> Opening | None:
        """How a section would open that begins with this line; None where it should not."""
        text = self.text
        self._look_for_fences(line)
        if self._fence:
            return None if self._closes(line) else Opening(fence=self._fence)
        head = text[line : line + 80].partition("\n")[0]
        if is_blank(head.rstrip("\r")):
            return None
        after_blank = is_blank(text[text.rfind("\n", 0, line - 1) + 1 : line - 1].rstrip("\r"))
        if (after_blank and not head.startswith((" ", "\t"))) or _HEADING.match(head):
            return Opening(apart=True)
        if not after_blank:
            if self._is_plain(line):
                return Opening(plain=True)
            if _ITEM.match(head) and self._is_same_list(self._run(line), line):
                return Opening(item=True)
            if "|" in head and (table := self._table(self._run(line), line)):
                large = sum(map(len, table)) > LARGE_UNIT
                return Opening(plain=True) if large else Opening(table=table)
        return None if line - self._start < LONGEST else Opening(apart=after_blank, plain=not after_blank)

    def _run(self, line: int) -> int:
        """Where the lines begin that have no empty one between them and this one."""
        empty = self.text.rfind("\n\n", self._start, line)
        return self._start if empty < 0 else empty + 2

    def _is_plain(self, line: int) -> bool:
        """The line belongs to a unit that is shown as it came."""
        return self.opening.plain and self._run(line) == self._start

    def _is_same_list(self, begins: int, line: int) -> bool:
        """The line is an item of the list that the lines from `begins` on belong to."""
        marker = _ITEM.match(self.text, line)
        if marker is None:
            return False
        last = line
        while last > begins:
            last = self.text.rfind("\n", begins, last - 1) + 1 or begins
            if not self.text.startswith((" ", "\t"), last):
                break
        before = _ITEM.match(self.text, last)
        return before is not None and last < line and before[0][-1] == marker[0][-1]

    def _table(self, begins: int, line: int) -> tuple[str, ...]:
        """The first lines of the table that the lines from `begins` on are; none where they are no table."""
        if begins == self._start and self.opening.table:
            return self.opening.table
        found = _DELIMITER.search(self.text, begins, line)
        if found is None or found.start() <= begins:
            return ()
        head = self.text.rfind("\n", begins, found.start() - 1) + 1 or begins
        if _NO_ROW.search(self.text, found.end(), line - 1):
            return ()
        lines = self.text[head : line - 1].split("\n")[: TABLE_HEAD + 2]
        [unit, *others] = units_of(lines, joined=False, header=None)
        return tuple(lines) if unit.kind == "table" and not others else ()

    # --- fences ------------------------------------------------------------------------------------------

    def _look_for_fences(self, until: int) -> None:
        """Knows whether the line at `until` stands in a fence."""
        text = self.text
        marks = [mark for mark in ("```", "~~~") if text.find(mark, self._fenced, until) >= 0]
        while places := [at for mark in marks if (at := text.find(mark, self._fenced, until)) >= 0]:
            at = min(places)
            line = max(text.rfind("\n", 0, at) + 1, self._start)
            self._fenced = text.find("\n", at) + 1 or until
            if self._fence:
                if self._closes(line):
                    self._fence = ""
            elif (found := _FENCE.match(text, line)) and not self._is_inside_item(line, len(found[1])):
                self._fence = found[0].rstrip("\r")
        self._fenced = max(self._fenced, until)

    def _closes(self, line: int) -> bool:
        opened, found = _FENCE.match(self._fence), _FENCE.match(self.text, line)
        return bool(opened and found and found[2].startswith(opened[2]) and not found[3].strip(" \t\r"))

    def _is_inside_item(self, line: int, indent: int) -> bool:
        """An indented fence that belongs to an item: whatever is not indented ends it."""
        text = self.text
        for _ in range(100 if indent else 0):
            if line <= self._start:
                break
            line, end = text.rfind("\n", 0, line - 1) + 1, line - 1
            before = text[line:end]
            if not is_blank(before) and len(before) - len(before.lstrip(" ")) < indent:
                item = _INDENTED_ITEM.match(before)
                return item is not None and item.end() <= indent
        return False
