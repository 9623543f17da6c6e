"""Turns what SQLite and the file system complain about into errors that name the file and the way out."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from crushpy.storage.records import StorageError

_HINTS = {
    "SQLITE_FULL": "The disk is full. Free some space and try again; what was stored before is safe.",
    "SQLITE_IOERR": "The disk is full, failing or was unplugged. Check it with `df` and the system's log.",
    "SQLITE_READONLY": "Make the file and its folder writable, or set CRUSHPY_HOME to a folder that is.",
    "SQLITE_CANTOPEN": "Make sure the folder exists and is writable, or set CRUSHPY_HOME to one that is.",
    "SQLITE_PERM": "Make the file and its folder writable, or set CRUSHPY_HOME to a folder that is.",
    "SQLITE_BUSY": "Another program has been writing to it for over a minute. Close that one, try again.",
    "SQLITE_NOTADB": "It is left as it is. Name a database of crushpy, or a file that is not there yet.",
    "SQLITE_CORRUPT": "The file is damaged. The next start keeps it under another name and begins a new one; "
    "`sqlite3 FILE .recover` can save what is in it.",
}
DAMAGED = ".damaged"
"""Ends the name of a file beside the database: reading failed, and the next start looks through it."""
_FILE_HINT = "Check the folder's permissions and the free space, or set CRUSHPY_HOME to another folder."
_OTHER_HINT = "Run `crushpy doctor` to check the database."


@contextmanager
def explained(file: Path) -> Generator[None]:
    """Runs its body; a fault of the database comes out as `StorageError`. Bugs stay what they are."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot use the database {file}: {error.strerror or error}", _FILE_HINT
        ) from error
    except sqlite3.Error as fault:
        if fault_name(fault).startswith("SQLITE_CORRUPT"):
            with suppress(OSError):
                file.with_name(f"{file.name}{DAMAGED}").touch(mode=0o600)
        raise StorageError(f"cannot use the database {file}: {fault}", hint_for(fault)) from fault


def hint_for(fault: sqlite3.Error) -> str:
    """What a person can do about it."""
    name = fault_name(fault)
    return next((hint for start, hint in _HINTS.items() if name.startswith(start)), _OTHER_HINT)


def fault_name(fault: sqlite3.Error) -> str:
    """SQLite's own name of the fault, such as SQLITE_FULL. Empty where Python raised it by itself."""
    return cast(str, getattr(fault, "sqlite_errorname", None) or "")
