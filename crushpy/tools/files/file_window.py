"""Some lines of a large text file, read in pieces: what it costs depends on the lines, not on the file."""

import codecs
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from crushpy.images import image_type
from crushpy.messages import Data
from crushpy.safe_open import open_regular
from crushpy.tools.files.file_memory import DIGEST_SIZE
from crushpy.tools.files.text_file import MAX_FILE_BYTES, has_mark
from crushpy.tools.truncate import MAX_RESULT_CHARS

_FROM = 2_000_000
"""Smaller files are read whole."""
_CHUNK = 1 << 18
_KEPT = 4 * MAX_RESULT_CHARS
"""Bytes of lines that are kept: more do not fit into a result."""


class FileWindow(Data, frozen=True):
    lines: list[str]
    """From the first one asked for on, as many as can be shown."""
    total: int
    """Lines of the whole file."""
    digest: str
    """Of the whole file."""


def is_windowed(path: Path) -> bool:
    """Whether the file is so large that only a part of it should be read. False where that is not known."""
    try:
        return os.lstat(path).st_size > _FROM
    except (OSError, ValueError):
        return False


def read_window(path: Path, offset: int, limit: int) -> FileWindow | None:
    """`limit` lines from number `offset` on; None where the file is better read whole.

    That is: a small one, one that is not plain UTF-8 with newlines, or with lines of megabytes.
    """
    handle = open_regular(path)
    with os.fdopen(handle, "rb", buffering=0) as file:
        if not _FROM < os.fstat(handle).st_size <= MAX_FILE_BYTES:
            return None
        return _window(iter(lambda: file.read(_CHUNK), b""), offset, limit)


def _window(chunks: Iterator[bytes], offset: int, limit: int) -> FileWindow | None:
    digest = blake2b(digest_size=DIGEST_SIZE)
    decoder = codecs.getincrementaldecoder("utf-8")()
    kept = bytearray()
    number = 1  # of the line at hand
    size = 0
    last = b""
    cut = False
    try:
        for chunk in chunks:
            if not size and (b"\0" in chunk[:8_192] or has_mark(chunk) or image_type(chunk)):
                return None
            decoder.decode(chunk)
            digest.update(chunk)
            size += len(chunk)
            last = chunk[-1:]
            here = chunk.count(b"\n")
            if number < offset + limit and number + here >= offset:
                if len(kept) >= _KEPT:
                    cut = True
                else:
                    kept += _from_line(chunk, offset - number) if number < offset else chunk
            number += here
            if size > MAX_FILE_BYTES or (number == 1 and size > _FROM):
                return None
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    lines = bytes(kept).decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if cut and len(lines) < 3:
        return None
    total = number - (last == b"\n")
    wanted = min(limit, max(total - offset + 1, 0), len(lines) - cut)  # the last one that is kept may be half
    return FileWindow(lines[:wanted], total, digest.hexdigest())


def _from_line(chunk: bytes, skipped: int) -> bytes:
    """What follows the first `skipped` line endings."""
    start = 0
    for _ in range(skipped):
        start = chunk.index(b"\n", start) + 1
    return chunk[start:]
