"""Leases: one writer for each session. A row names the process that may write, with a fencing token.

On a server a heartbeat, by the server's clock, tells whether that process is alive. A process that was
suspended for long, and whose lease another one acquired meanwhile, finds another token, or no row, at its
next write to any session of that conversation: it is refused, even if the other one is gone. The processes
that use a file are usually on one machine and see whether another one runs: they need no heartbeats.
"""

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.storage.database import Database, handwritten
from crushpy.storage.records import SessionBusy, StorageError
from crushpy.util.processes import started_at, still_runs

HEARTBEAT_S = 10.0
LEASE_TIMEOUT_S = 45.0
"""After this time without a heartbeat a process counts as dead; `CRUSHPY_LEASE_SECONDS` overrides it."""
FILE_LEASE_TIMEOUT_S = 15 * 60.0
"""After this time without a write a process on another machine that uses the same file counts as dead."""

_FIND_ROOT = handwritten("SELECT root_id FROM session WHERE id = :session")
_MOVE = handwritten("UPDATE lease SET session_id = :child WHERE session_id = :session AND token = :token")
_DELETE = handwritten("DELETE FROM lease WHERE token = :token")
_SESSION_EXISTS = handwritten("SELECT 1 FROM session WHERE id = :session AND kind <> 'deleted'")


class Leases(ABC):
    """The leases of this process. `now` and `new_token` are SQL expressions."""

    def __init__(self, db: Database, place: str, now: str, new_token: str) -> None:
        me = os.getpid()
        self._db = db
        self._me = {"process": me, "started": started_at(me), "host": platform.node(), "place": place}
        self._held: dict[str, tuple[int, str]] = {}
        """Sessions this store acquired: the token, and the conversation."""
        columns = "session_id, process, started, host, place"
        others = ", ".join(f"{name} = excluded.{name}" for name in (*self._me, "heartbeat", "token"))
        self._find = handwritten(
            f"SELECT {columns}, token, CAST({now} - heartbeat AS double precision) AS silent "  # noqa: S608
            "FROM lease WHERE session_id = :session"
        )
        self._acquire = handwritten(
            f"INSERT INTO lease ({columns}, heartbeat, token) VALUES (:session, :process, :started, :host, "  # noqa: S608
            f":place, {now}, {new_token}) ON CONFLICT (session_id) DO UPDATE SET {others} RETURNING token"
        )
        self._renew = handwritten(f"UPDATE lease SET heartbeat = {now} WHERE token = :token")  # noqa: S608

    def acquire(self, session_id: str) -> bool:
        """Makes this process the only writer; False if it was already. `SessionBusy` if another one is."""
        self._held.pop(session_id, None)
        with self._db.transaction(session=session_id):
            token, mine = self._take(session_id)
            root = self._db.execute(_FIND_ROOT, session=session_id).scalar() or session_id
        self._held[session_id] = (token, root)
        return not mine

    def _take(self, session_id: str) -> tuple[int, bool]:
        """The token of the lease, and whether this process had it already."""
        row = self._find_row(session_id)
        if row is not None and all(row[name] == value for name, value in self._me.items()):
            return row["token"], True
        if row is not None and self._is_alive(row):
            raise _session_busy(session_id, row["process"], "" if self._is_here(row) else row["host"])
        return self._db.execute(self._acquire, session=session_id, **self._me).scalar(), False

    def _find_row(self, session_id: str) -> dict[str, Any] | None:
        return next(self._db.execute(self._find, session=session_id).dicts(), None)

    def _is_here(self, row: Mapping[str, Any]) -> bool:
        """Whether a process id of the row is valid here."""
        return (row["host"], row["place"]) == (self._me["host"], self._me["place"])

    def confirm(self, place: str) -> None:
        """Inside a transaction that writes to a session or conversation: this is still its writer."""
        # Boundaries pass a token on: however many sessions there are, each token is renewed once.
        tokens = {token: session for session, (token, root) in self._held.items() if place in (session, root)}
        for token, session in tokens.items():
            if not self._db.execute(self._renew, token=token).rowcount:
                if self._db.execute(_SESSION_EXISTS, session=session).scalar() is None:
                    raise StorageError(
                        f"session {session} is not in the database {self._db.place}",
                        "It was deleted meanwhile. Start a new session.",
                    )
                self._handle_loss(session)

    def renew_all(self) -> float | None:
        """On a timer: this process is alive. Seconds until the next time; None if no heartbeat is needed."""
        return None

    def move(self, parent_id: str, child_id: str) -> None:
        """Inside the transaction of a boundary: the writer of the parent continues in the child."""
        held = self._held.get(parent_id)
        if held is not None:
            self._db.execute(_MOVE, session=parent_id, token=held[0], child=child_id)
            self._held[child_id] = held  # the token counts, even if this is not committed

    def release(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None:
            self._db.execute(_DELETE, token=held[0])
            self._held = {session: one for session, one in self._held.items() if one != held}

    def release_all(self) -> None:
        """Releases what this store acquired; another store of this process keeps its own."""
        for token in {token for token, _ in self._held.values()}:
            self._db.execute(_DELETE, token=token)
        self._held.clear()

    @abstractmethod
    def _is_alive(self, row: Mapping[str, Any]) -> bool: ...

    @abstractmethod
    def _handle_loss(self, session: str) -> None:
        """The row of a lease of ours is gone, or belongs to another process."""


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
        for token in {token for token, _ in self._held.values()}:
            self._db.execute(self._renew, token=token)
        return min(HEARTBEAT_S, _lease_timeout() / 4) if self._held else None


def _session_busy(session_id: str, process: int, host: str) -> SessionBusy:
    """The error for the second process; `host` is empty if the first one is on this machine."""
    where = f" on {host}" if host else ""
    busy = SessionBusy(
        f"session {session_id} is in use by another crushpy (process {process}{where})",
        "Continue there, end it, or work on a branch of your own with --fork. "
        "`crushpy sessions show` reads it without writing.",
    )
    busy.session_id = session_id
    return busy


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
