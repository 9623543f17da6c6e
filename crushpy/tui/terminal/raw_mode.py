"""Takes hold of the terminal before anything heavy is loaded, and gives it back as it was.

Keys typed while modules load are neither echoed nor changed by the kernel; they wait for the app.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

PATIENCE = 5.0
"""Seconds to store what is left when the terminal has gone."""
CC, IFLAG, LFLAG = 6, 0, 3
WIPE = "\x1b[0m\x1b[2J"
"""Empties the screen of the terminal."""


@contextmanager
def held() -> Generator[bytes]:
    """The terminal without echo and line editing, for the time of the block. Gives what was typed before."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before: list[Any] = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError):
        yield b""
        return
    quiet = termios.tcgetattr(descriptor)
    quiet[LFLAG] &= ~(termios.ECHO | termios.ICANON)
    quiet[IFLAG] &= ~termios.ICRNL  # Enter stays Enter
    quiet[CC][termios.VMIN], quiet[CC][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()
    try:
        yield _typed(descriptor)
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def typed_meanwhile() -> bytes:
    """What was typed since, and the terminal's answers; inside `held`."""
    try:
        return _waiting(sys.stdin.fileno())
    except (OSError, ValueError):
        return b""


def _typed(descriptor: int) -> bytes:
    """What waits to be read. The kernel has made line feeds of the Enter keys in it."""
    return _waiting(descriptor).replace(b"\n", b"\r")


def _waiting(descriptor: int) -> bytes:
    typed = b""
    while select.select([descriptor], [], [], 0)[0]:
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        typed += piece
    return typed


def _watch(descriptor: int) -> None:
    """Leaves when the terminal goes away: reading from it would spin on nothing for ever."""
    poll = select.poll()
    poll.register(descriptor, 0)  # only hang-ups and errors
    poll.poll()
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(PATIENCE)
    os._exit(128 + signal.SIGHUP)  # there is no terminal left to say goodbye to
