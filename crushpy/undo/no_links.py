"""Reaches a file without following a single link: what was recorded of a path is done to that path alone."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER = _PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)
CHUNK = 1 << 20


class Place(NamedTuple):
    """A name in an open folder."""

    folder: int
    name: str

    def status(self) -> os.stat_result | None:
        """None where nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


@contextmanager
def opened_place(path: str, *, make: bool = False) -> Generator[Place]:
    """The folder of an absolute path, opened step by step. With `make`, missing folders are made.

    Raises OSError: FileNotFoundError or NotADirectoryError also where a folder on the way is a link now.
    """
    parts = [part for part in path.split("/") if part]
    handle = os.open("/", _FOLDER)
    try:
        for part in parts[:-1]:
            handle = _step(handle, part, make=make)
        yield Place(handle, parts[-1] if parts else ".")
    finally:
        os.close(handle)


def _step(handle: int, part: str, *, make: bool) -> int:
    """Goes from one open folder into another; the first is closed."""
    try:
        inner = os.open(part, _FOLDER, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=handle)
        inner = os.open(part, _FOLDER, dir_fd=handle)
    os.close(handle)
    return inner


def read_bytes(place: Place, limit: int) -> tuple[os.stat_result, bytes | None]:
    """A regular file's status and bytes; None for the bytes where they are more than `limit`."""
    handle = os.open(place.name, _READ, dir_fd=place.folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{place.name} is no regular file any more")
        if status.st_size > limit:
            return status, None
        pieces: list[bytes] = []
        size = 0
        while piece := os.read(handle, CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                return os.fstat(handle), None
        return os.fstat(handle), b"".join(pieces)
    finally:
        os.close(handle)


def entry_names(place: Place) -> list[str]:
    """What a folder holds."""
    handle = os.open(
        place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.folder
    )
    try:
        return os.listdir(handle)  # noqa: PTH208
    finally:
        os.close(handle)
