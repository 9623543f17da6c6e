"""Tells whether a process of this machine still runs, and which signals end one."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_ENDING = "HUP INT QUIT TERM USR1 USR2 ALRM VTALRM PROF XCPU IO PWR STKFLT"
ENDING_SIGNALS = tuple(
    getattr(signal, f"SIG{name}") for name in _ENDING.split() if hasattr(signal, f"SIG{name}")
)
"""Those that end a program which does not handle them, and that can be handled."""


@contextmanager
def exit_on_signals(prepare: Callable[[int], bool] = lambda number: True) -> Generator[None]:
    """A signal that would end the program inside raises SystemExit, so that the terminal is restored.
    `prepare` is called before, with its number; False if the program is to go on."""

    def exit_now(number: int, _: FrameType | None) -> None:
        if prepare(number):
            raise SystemExit(128 + number)

    usual_handlers = (signal.SIG_DFL, signal.default_int_handler)
    usual = {number: now for number in ENDING_SIGNALS if (now := signal.getsignal(number)) in usual_handlers}
    for number in usual:
        signal.signal(number, exit_now)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def started_at(process: int) -> str:
    """Return when a process started, in the kernel's units; empty if unknown."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def still_runs(process: int, start: str) -> bool:
    """Whether the process that `started_at` described as `start` is still running."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it exists, but belongs to another user
    return started_at(process) == start
