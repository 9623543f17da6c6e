"""Takes hold of the terminal before anything heavy is loaded, and gives it back as it was.

Keys typed while modules load are neither echoed nor changed by the kernel; they wait for the app.
"""

import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

CC, IFLAG, LFLAG = 6, 0, 3


@contextmanager
def held() -> Generator[str]:
    """The terminal without echo and line editing, for the time of the block. Gives what was typed before."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before: list[Any] = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError):
        yield ""
        return
    quiet = termios.tcgetattr(descriptor)
    quiet[LFLAG] &= ~(termios.ECHO | termios.ICANON)
    quiet[IFLAG] &= ~termios.ICRNL  # Enter stays Enter
    quiet[CC][termios.VMIN], quiet[CC][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield _typed(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _typed(descriptor: int) -> str:
    """What waits to be read. The kernel has made line feeds of the Enter keys in it."""
    typed = b""
    while select.select([descriptor], [], [], 0)[0]:
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        typed += piece
    return typed.decode("utf-8", "replace").replace("\n", "\r")
