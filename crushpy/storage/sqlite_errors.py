"""Errors of SQLite and the file system for people, and waiting while other processes write."""

import random
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

from crushpy.storage.database import GAVE_UP_SECONDS, NEVER
from crushpy.storage.records import CannotWriteNow, DatabaseLost, StorageError

T = TypeVar("T")
_HINTS = {
    "SQLITE_FULL": "The disk is full. Free some space and try again; what was stored before is safe.",
    "SQLITE_IOERR": "The disk is full, failing or was unplugged. Check it with `df` and the system's log.",
    "SQLITE_READONLY": "Make the file and its folder writable, or set CRUSHPY_HOME to a folder that is.",
    "SQLITE_CANTOPEN": "Make sure the folder exists and is writable, or set CRUSHPY_HOME to one that is.",
    "SQLITE_PERM": "Make the file and its folder writable, or set CRUSHPY_HOME to a folder that is.",
    "SQLITE_BUSY": "Another program has been writing to it for over a minute. Close that one, try again.",
    "SQLITE_NOTADB": "It was not changed. Name a database of crushpy, or a file that does not exist yet.",
    "SQLITE_CORRUPT": "The file is damaged. The next start copies what can be read into a new one.",
}
DAMAGED_SUFFIX = ".damaged"
"""Ends the name of a file beside the database: reading failed, and the next start checks it."""
_FILE_HINT = "Check the folder's permissions and the free space, or set CRUSHPY_HOME to another folder."
_OTHER_HINT = "Run `crushpy doctor` to check the database."
BUSY_TIMEOUT_S = 60.0
"""How long a write waits for other processes."""
SQLITE_TIMEOUT_S = 0.004
"""How long SQLite waits by itself: the longer it does, the less often it polls."""
NO_WAIT_TIMEOUT_S = 0.3
"""How long work waits that can be done later."""
NOTICE_DELAY_S = 2.0
"""How long a wait takes before the user is told."""
_FIRST_POLL_S, _POLL_S = 0.003, 0.03
"""The longest time between two attempts; more often at first, since most writes are short."""
_FIRST_POLL_PERIOD_S = 0.15


@contextmanager
def explained(file: Path) -> Generator[None]:
    """Turns errors of the database into `StorageError`. Bugs stay what they are."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot use the database {file}: {error.strerror or error}", _FILE_HINT
        ) from error
    except sqlite3.Error as error:
        name = error_name(error)
        if name.startswith("SQLITE_CORRUPT"):
            with suppress(OSError):
                file.with_name(f"{file.name}{DAMAGED_SUFFIX}").touch(mode=0o600)
        hint = next((hint for start, hint in _HINTS.items() if name.startswith(start)), _OTHER_HINT)
        lost = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        raise (DatabaseLost if lost else StorageError)(
            f"cannot use the database {file}: {error}", hint
        ) from error


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of the error, such as SQLITE_FULL. Empty if Python raised it by itself."""
    return cast(str, getattr(error, "sqlite_errorname", None) or "")


class BusyRetry:
    """Retries while other processes write: often, at random moments, so that no process starves.

    `notify` is called once, and once more when it continues, if a wait takes long.
    """

    def __init__(self, place: str, notify: Callable[[str], None]) -> None:
        self._place = place
        self._notify = notify
        self._no_wait = False
        self._gave_up_at = NEVER

    @contextmanager
    def no_wait(self) -> Generator[None]:
        """Its body writes at once, or raises `CannotWriteNow`."""
        before, self._no_wait = self._no_wait, True
        try:
            yield
        except sqlite3.Error as error:
            if not error_name(error).startswith(("SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_FULL")):
                raise
            raise CannotWriteNow(f"cannot write to the database {self._place} now: {error}") from error
        finally:
            self._no_wait = before

    def __call__(self, action: Callable[[], T]) -> T:
        """The result of `action`, repeated while the database is busy; it must then change nothing."""
        started = time.monotonic()
        told = False
        while True:
            try:
                done = action()
            except sqlite3.Error as error:
                waited = time.monotonic() - started
                if not error_name(error).startswith("SQLITE_BUSY"):
                    raise
                hopeless = self._no_wait or started - self._gave_up_at < GAVE_UP_SECONDS
                if waited >= (NO_WAIT_TIMEOUT_S if hopeless else BUSY_TIMEOUT_S):
                    if not self._no_wait:
                        self._gave_up_at = time.monotonic()
                    raise
                if waited >= NOTICE_DELAY_S and not told:
                    told = True
                    self._notify(
                        f"Another program is writing to the database {self._place}. "
                        "Waiting for it, up to a minute."
                    )
            else:
                if told:
                    self._notify(f"The database {self._place} is free again.")
                return done
            longest = _FIRST_POLL_S if waited < _FIRST_POLL_PERIOD_S else _POLL_S
            time.sleep(random.uniform(0, longest))  # noqa: S311  # not for secrets
