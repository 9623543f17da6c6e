"""Waits while other processes write: often, at random moments, so that nobody is passed over for ever."""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from crushpy.storage.sqlite.faults import fault_name

T = TypeVar("T")
BUSY_SECONDS = 60.0
"""How long a write waits for other processes."""
AT_A_TIME = 0.1
"""Of these, how long SQLite waits by itself: the longer it does, the more seldom it looks."""
_PAUSE = 0.02


def patiently(action: Callable[[], T]) -> T:
    """What `action` gives; tried again while the database is busy, which must have changed nothing."""
    began = time.monotonic()
    while True:
        try:
            return action()
        except sqlite3.Error as fault:
            if not is_busy(fault) or time.monotonic() - began >= BUSY_SECONDS:
                raise
        time.sleep(random.uniform(0, _PAUSE))  # noqa: S311  # not for secrets


def is_busy(fault: sqlite3.Error) -> bool:
    return fault_name(fault).startswith("SQLITE_BUSY")
