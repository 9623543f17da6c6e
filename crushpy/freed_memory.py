"""Has the memory of large texts go back to the system when they are freed."""

import sys

LARGE = 128 * 1024
"""Bytes from which on a block is one of its own."""
_MMAP_THRESHOLD = -3
"""The number that glibc's malloc.h has for it."""


def hand_back_large_blocks() -> None:
    """Where the C library is glibc: it takes larger and larger blocks, up to 32 MB, from what it keeps once
    it has seen one freed. A reply of 10 MB is copied a few times on its way to the database."""
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE)
