"""Reads some lines of a large text file in chunks: the memory used depends on the lines, not on the file."""

import codecs
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.safe_open import open_folder
from crushpy.tools.files.file_memory import DIGEST_SIZE
from crushpy.tools.files.text_file import MAX_FILE_BYTES, has_byte_order_mark
from crushpy.tools.truncate import MAX_LINE_CHARS, MAX_RESULT_CHARS, marker
from crushpy.util.images import image_type

MIN_WINDOWED_BYTES = 2_000_000
"""Smaller files are read at once."""
CHUNK_BYTES = 1 << 18
MAX_KEPT_CHARS = 2 * MAX_RESULT_CHARS
"""Characters of lines that are kept; more do not fit into a result."""


class FileWindow(Data, frozen=True):
    lines: list[str]
    """From the first requested line on, as many as can be shown, long ones shortened."""
    total: int
    """Lines of the whole file."""
    digest: str
    """Of the whole file."""


def is_windowed(path: Path) -> bool:
    """Whether the file is so large that only part of it should be read; False if unknown."""
    try:
        return os.lstat(path).st_size > MIN_WINDOWED_BYTES
    except (OSError, ValueError):
        return False


def read_window(path: Path, offset: int, limit: int) -> FileWindow | None:
    """`limit` lines from number `offset` on; None if the file should be read at once.

    That is the case for a small file, and for one that is not plain UTF-8 with newlines.
    """
    with open_folder(path.parent) as folder:
        handle = folder.open_regular(path.name)
    with os.fdopen(handle, "rb", buffering=0) as file:
        if not MIN_WINDOWED_BYTES < os.fstat(handle).st_size <= MAX_FILE_BYTES:
            return None
        return _window(iter(lambda: file.read(CHUNK_BYTES), b""), offset, limit)


def _window(chunks: Iterator[bytes], offset: int, limit: int) -> FileWindow | None:
    digest = blake2b(digest_size=DIGEST_SIZE)
    decoder = codecs.getincrementaldecoder("utf-8")()
    found = _FoundLines(offset, limit)
    size = 0
    try:
        for chunk in chunks:
            if not size and (b"\0" in chunk[:8_192] or has_byte_order_mark(chunk) or image_type(chunk)):
                return None
            found.add(decoder.decode(chunk))
            digest.update(chunk)
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                return None
        found.add(decoder.decode(b"", final=True))
    except UnicodeDecodeError:
        return None
    found.end()
    return None if found.has_old_endings else FileWindow(found.lines, found.total, digest.hexdigest())


class _FoundLines:
    """Takes a text in chunks; keeps the beginnings of the requested lines, as many as can be shown."""

    def __init__(self, offset: int, limit: int) -> None:
        self._wanted = range(offset, offset + limit)
        self._room = MAX_KEPT_CHARS
        self._head = ""
        """The beginning of the current line, if it is requested."""
        self._length = 0
        """The length of that line."""
        self._last = ""
        """The last character so far."""
        self._ended = 0
        """Complete lines so far."""
        self._newlines = self._returns = False
        self.lines: list[str] = []

    @property
    def total(self) -> int:
        return self._ended + (self._last not in ("", "\n"))

    @property
    def has_old_endings(self) -> bool:
        """True if lines end with carriage returns only."""
        return self._returns and not self._newlines

    def add(self, text: str) -> None:
        if not text:
            return
        ends = text.count("\n")
        number = self._ended + 1
        if number + ends < self._wanted.start or number >= self._wanted.stop or self._room < 0:
            self._ended += ends
        else:
            *whole, rest = text.split("\n")
            for piece in whole:
                self._grow(piece)
                self._end_line(returned=(piece or self._last)[-1:] == "\r")
                self._last = "\n"
            self._grow(rest)
        self._last = text[-1]
        self._newlines = self._newlines or ends > 0
        self._returns = self._returns or (not self._newlines and "\r" in text)

    def end(self) -> None:
        """Completes the last line, which may have no newline."""
        if self._last not in ("", "\n"):
            self._end_line(returned=False)
            self._last = "\n"

    def _grow(self, piece: str) -> None:
        if self._ended + 1 in self._wanted:
            self._head += piece[: MAX_LINE_CHARS + 1 - len(self._head)]
            self._length += len(piece)

    def _end_line(self, *, returned: bool) -> None:
        """`returned`: with a carriage return before the newline."""
        if self._ended + 1 in self._wanted and self._room >= 0:
            length = self._length - returned
            line = self._head[:length]
            if length > MAX_LINE_CHARS:
                line = f"{line[:MAX_LINE_CHARS]} {marker(length - MAX_LINE_CHARS)}"
            self.lines.append(line)
            self._room -= len(line)
        self._head, self._length = "", 0
        self._ended += 1
