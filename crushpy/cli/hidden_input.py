"""Reads one line that nobody shall see: at a prompt without echo, or from stdin if that is no terminal."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from crushpy.core.errors import UsageError

MOST_BYTES = 65_536
"""More than any key has; a file handed over by mistake is not read to its end."""


def read_hidden(prompt: str) -> str:
    """The line, without its end. Raises UsageError where there is none or more than one."""
    return _asked(prompt) if sys.stdin.isatty() else _piped()


def _asked(prompt: str) -> str:
    import getpass

    with _echo_restored():
        try:
            return getpass.getpass(prompt)
        except EOFError:
            raise UsageError("No key was given.") from None
        except KeyboardInterrupt:
            print(file=sys.stderr)  # the shell's prompt belongs on a line of its own
            raise


@contextmanager
def _echo_restored() -> Generator[None]:
    """A signal that ends the program while echo is off turns it on again first."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _piped() -> str:
    """The first line, as soon as it is there: whoever writes it need not hang up."""
    data = b""
    while b"\n" not in data and len(data) <= MOST_BYTES:
        piece = os.read(sys.stdin.fileno(), MOST_BYTES)
        if not piece:
            break
        data += piece
    line, _, rest = data.partition(b"\n")
    if rest.strip():
        raise UsageError("This is no key: there is more than one line.", "Hand over the key alone.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UsageError("This is no key: it is no text.", "Hand over the key alone.") from None
