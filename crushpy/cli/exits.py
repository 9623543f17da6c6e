"""Turns errors into messages and exit codes, and makes stdout and stderr safe to write to."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper

from crushpy.core.errors import CrushpyError


@contextmanager
def report_errors() -> Generator[None]:
    """Reports the error that ends the command inside, flushes its output and exits."""
    prepare_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except CrushpyError as error:
        from crushpy.security.sanitize import clean

        print(f"crushpy: {clean(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"  {clean(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):  # the reader has gone
            print(f"crushpy: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def prepare_streams() -> None:
    """Makes stdout and stderr accept any text, even if they are closed or have a limited encoding."""
    # The descriptor of a closed stream would be reused by the next file, which would get our output.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def discard_output() -> None:
    """Discards the buffer of a closed stdout; Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
