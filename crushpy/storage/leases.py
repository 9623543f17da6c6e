"""How the process that holds a lease is found to be dead, and what happens to one that lost it.

On a server a heartbeat, by the server's clock, tells whether that process is alive. A process that was
suspended for long, and whose lease another one acquired meanwhile, finds another token, or no row, at its
next write to any session of that conversation: it is refused, even if the other one is gone. The processes
that use a file are usually on one machine and see whether another one runs: they need no heartbeats.
"""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.storage.database import Database, Leases
from crushpy.storage.records import StorageError
from crushpy.util.processes import still_runs

HEARTBEAT_S = 10.0
LEASE_TIMEOUT_S = 45.0
"""After this time without a heartbeat a process counts as dead; `CRUSHPY_LEASE_SECONDS` overrides it."""
FILE_LEASE_TIMEOUT_S = 15 * 60.0
"""After this time without a write a process on another machine that uses the same file counts as dead."""


class SqliteLeases(Leases):
    def __init__(self, db: Database) -> None:
        super().__init__(db, "", "((julianday('now') - 2440587.5) * 86400.0)", "random()")

    def _is_alive(self, row: Mapping[str, Any]) -> bool:
        if self._is_here(row):
            return still_runs(row["process"], row["started"])
        return row["silent"] < FILE_LEASE_TIMEOUT_S

    def _handle_loss(self, session: str) -> None:
        """Another store of this process may have released it. Raises if another process is alive."""
        self._held[session] = (self._take(session)[0], self._held[session][1])


class PostgresLeases(Leases):
    def __init__(self, db: Database) -> None:
        super().__init__(db, _place(), "extract(epoch FROM clock_timestamp())", "nextval('lease_token')")

    def _is_alive(self, row: Mapping[str, Any]) -> bool:
        if row["silent"] >= _lease_timeout():
            return False
        return not self._is_here(row) or still_runs(row["process"], row["started"])

    def _handle_loss(self, session: str) -> None:
        row = self._find_row(session)
        by = f" (process {row['process']} on {row['host']})" if row is not None else ""
        raise StorageError(
            f"session {session} was taken over by another crushpy{by} while this one was suspended",
            "Nothing was written from here since. Open the session again to see its messages.",
        )

    def renew_all(self) -> float | None:
        for token in self.tokens:
            self._db.execute(self._renew, token=token)
        return min(HEARTBEAT_S, _lease_timeout() / 4) if self._held else None


def _lease_timeout() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_LEASE_SECONDS"])) or LEASE_TIMEOUT_S
    except (KeyError, ValueError):
        return LEASE_TIMEOUT_S


def _place() -> str:
    """The scope of a process id: this boot of this machine, and this container on it."""
    found = platform.node()
    with suppress(OSError):
        found += f" {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    with suppress(OSError):
        found += f" {Path('/proc/self/ns/pid').readlink()}"
    return found
