"""Modes of a terminal. Only this module imports `termios`."""

from contextlib import suppress
from typing import Any

try:
    import termios
except ImportError:  # Windows
    termios = None

_CC, _IFLAG, _LFLAG = 6, 0, 3


def read_single_keys(descriptor: int) -> list[Any]:
    """Turns echo and line editing off. Returns the modes before. Raises OSError if it is not a terminal."""
    if termios is None:
        raise OSError("this system has no terminal modes")
    try:
        before, modes = termios.tcgetattr(descriptor), termios.tcgetattr(descriptor)
    except termios.error as error:
        raise OSError(*error.args) from error
    modes[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
    modes[_IFLAG] &= ~(termios.ICRNL | termios.IXON)  # Enter, Ctrl+Q and Ctrl+S stay keys
    modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    return before


def restore_modes(descriptor: int, modes: list[Any]) -> None:
    """Restores what `read_single_keys` returned, unless the terminal has gone away."""
    if termios is not None:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, modes)
