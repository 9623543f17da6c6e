"""Has the memory of large texts go back to the system when they are freed."""

import sys
from collections.abc import Callable

LARGE = 128 * 1024
"""Bytes from which on a block is one of its own."""
_MMAP_THRESHOLD = -3
"""The number that glibc's malloc.h has for it."""


def hand_back_large_blocks() -> None:
    """Where the C library is glibc: it takes larger and larger blocks, up to 32 MB, from what it keeps once
    it has seen one freed. A reply of 10 MB is copied a few times on its way to the database."""
    if sys.platform != "linux":
        return
    mallopt = _of_library("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE)


def hand_back_freed() -> None:
    """The same for what was freed of smaller blocks since. Takes a few milliseconds, in which others run."""
    trim = _of_library("malloc_trim") if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _of_library(name: str) -> Callable[[*tuple[int, ...]], int] | None:
    """A function of the C library, where it has it."""
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
