"""Waits while other processes write: often, at random moments, so that nobody is passed over for ever."""

import random
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from crushpy.storage.backend import JUST_NOW, LONG_AGO
from crushpy.storage.records import CannotWriteNow
from crushpy.storage.sqlite.faults import fault_name

T = TypeVar("T")
BUSY_SECONDS = 60.0
"""How long a write waits for other processes."""
AT_A_TIME = 0.004
"""Of these, how long SQLite waits by itself: the longer it does, the more seldom it looks."""
BRIEFLY = 0.3
"""How long work waits that may as well be done later."""
UNTOLD = 2.0
"""How long is waited before a person is told."""
_FIRST_PAUSE, _PAUSE = 0.003, 0.03
"""The longest between two looks; in the first moment more often, since most writes are over soon."""
_FIRST_MOMENT = 0.15


class Patience:
    """`say` is told once, and once more when it goes on, where a wait takes long."""

    def __init__(self, place: str, say: Callable[[str], None]) -> None:
        self._place = place
        self._say = say
        self._brief = False
        self._gave_up = LONG_AGO

    @contextmanager
    def briefly(self) -> Generator[None]:
        """What its body wants to write can be written at once, or it raises `CannotWriteNow`."""
        before, self._brief = self._brief, True
        try:
            yield
        except sqlite3.Error as fault:
            if not fault_name(fault).startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_FULL")):
                raise
            raise CannotWriteNow(f"cannot write to the database {self._place} now: {fault}") from fault
        finally:
            self._brief = before

    def __call__(self, action: Callable[[], T]) -> T:
        """What `action` gives; tried again while the database is busy, which must have changed nothing."""
        began = time.monotonic()
        told = False
        while True:
            try:
                done = action()
            except sqlite3.Error as fault:
                waited = time.monotonic() - began
                if not is_busy(fault):
                    raise
                if waited >= (BRIEFLY if self._brief or began - self._gave_up < JUST_NOW else BUSY_SECONDS):
                    if not self._brief:
                        self._gave_up = time.monotonic()
                    raise
                if waited >= UNTOLD and not told:
                    told = True
                    self._say(
                        f"Another program is writing to the database {self._place}. "
                        "Waiting for it, up to a minute."
                    )
            else:
                if told:
                    self._say(f"The database {self._place} is free again.")
                return done
            longest = _FIRST_PAUSE if waited < _FIRST_MOMENT else _PAUSE
            time.sleep(random.uniform(0, longest))  # noqa: S311  # not for secrets


def is_busy(fault: sqlite3.Error) -> bool:
    return fault_name(fault).startswith("SQLITE_BUSY")
