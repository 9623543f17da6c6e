"""Turns errors into messages and exit codes, and makes stdout and stderr safe to write to."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper

from crushpy.core.errors import CrushpyError


@contextmanager
def reporting_errors() -> Generator[None]:
    """Whatever ends the command inside, its output is written and the user knows why."""
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
        forget_output()
        if not isinstance(error, BrokenPipeError):  # whoever read it has gone, and knows
            print(f"crushpy: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def prepare_streams() -> None:
    """Lets stdout and stderr take any text, even where they are closed or know only some letters."""
    # The number of a closed stream would go to the next file that is opened, and our words into that.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def forget_output() -> None:
    """Drops what is still to be written to a stdout that takes no more; Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
