"""Files with one JSON object a line, read piece by piece: a file may be larger than memory."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crushpy.core.messages import Json
from crushpy.importers.foreign import DAMAGED, Unmapped, UnreadableSource
from crushpy.importers.values import mapping, parsed

MAX_LINE = 64 * 1024 * 1024
"""Bytes of the longest line that is read; a longer one is counted as damaged."""


class Line(NamedTuple):
    number: int
    value: Json


def json_lines(file: Path, unmapped: Unmapped) -> Iterator[Line]:
    """Every line that holds a JSON object. What does not is counted; a last line that was cut, too."""
    try:
        with file.open("rb") as stream:
            at = 0
            while data := stream.readline(MAX_LINE):
                at += 1
                if len(data) == MAX_LINE and not data.endswith(b"\n"):
                    _skip_line(stream)
                    unmapped[DAMAGED] += 1
                    continue
                if not data.strip():
                    continue
                value = parsed(data.removeprefix(b"\xef\xbb\xbf"))
                if isinstance(value, dict):
                    yield Line(at, mapping(value))
                else:
                    unmapped[DAMAGED] += 1
    except OSError as error:
        raise UnreadableSource(f"cannot read {file}: {error.strerror}", "Check its permissions.") from error


def _skip_line(stream: BinaryIO) -> None:
    """Reads to the end of a line that is too long."""
    while (data := stream.readline(MAX_LINE)) and not data.endswith(b"\n"):
        pass


def regular_files(path: Path, ending: str) -> list[Path]:
    """`path` itself where it is a file, else the files below it with this ending, in order.

    Links to folders are not followed, and what is no plain file (a pipe, a device) is left alone.
    """
    if _is_regular(path):
        return [path]
    found: list[Path] = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        found += [Path(folder) / name for name in sorted(files) if name.endswith(ending)]
    return [file for file in found if _is_regular(file)]


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False
