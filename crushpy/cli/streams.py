"""Makes stdout and stderr safe to write to, whatever they were opened on."""

import os
import sys
from io import TextIOWrapper


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
