"""Tells whether a process of this machine is still running, although process ids are reused."""

import os
from pathlib import Path


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
