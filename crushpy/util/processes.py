"""Whether a process of this machine still lives; process ids are used again."""

import os
from pathlib import Path


def started_at(process: int) -> str:
    """When a process started, as the system counts it; empty where it does not tell."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def still_runs(process: int, start: str) -> bool:
    """`start` is what `started_at` said of it then."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is there, but somebody else's
    return started_at(process) == start
