"""Leases over several machines: a heartbeat by the server's clock, and a fencing token.

A process that was suspended for long, and whose lease another one acquired meanwhile, finds another token, or
no row, at its next write to any session of that conversation: it is refused, even if the other one is gone.
"""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from crushpy.storage.database import Database, LeaseHolder, handwritten, session_busy
from crushpy.storage.records import StorageError
from crushpy.util.processes import started_at, still_runs

HEARTBEAT_S = 10.0
LEASE_TIMEOUT_S = 45.0
"""After this time without a heartbeat a process counts as dead; `CRUSHPY_LEASE_SECONDS` overrides it."""

_NOW = "extract(epoch FROM clock_timestamp())"
_FIND = handwritten(
    f"SELECT process, started, host, place, token, CAST({_NOW} - heartbeat AS double precision) AS silent "  # noqa: S608
    "FROM lease WHERE session_id = :session"
)
_FIND_ROOT = handwritten("SELECT root_id FROM session WHERE id = :session")
_ACQUIRE = handwritten(
    "INSERT INTO lease (session_id, process, started, host, place, heartbeat, token) "  # noqa: S608
    f"VALUES (:session, :process, :started, :host, :place, {_NOW}, nextval('lease_token')) "
    "ON CONFLICT (session_id) DO UPDATE SET process = excluded.process, started = excluded.started, "
    "host = excluded.host, place = excluded.place, heartbeat = excluded.heartbeat, token = excluded.token "
    "RETURNING token"
)
_RENEW = handwritten(f"UPDATE lease SET heartbeat = {_NOW} WHERE token = :token")  # noqa: S608
_MOVE = handwritten("UPDATE lease SET session_id = :child WHERE session_id = :session AND token = :token")
_DELETE = handwritten("DELETE FROM lease WHERE token = :token")
_SESSION_EXISTS = handwritten("SELECT 1 FROM session WHERE id = :session AND kind <> 'deleted'")


class PostgresLeases(LeaseHolder):
    def __init__(self, db: Database) -> None:
        self._db = db
        self._me: dict[str, Any] = {
            "process": os.getpid(),
            "started": started_at(os.getpid()),
            "host": platform.node(),
            "place": _place(),
        }
        self._held: dict[str, tuple[int, str]] = {}
        """Sessions this store acquired: the token, and the conversation."""

    def acquire(self, session_id: str) -> bool:
        self._held.pop(session_id, None)
        with self._db.transaction(session=session_id):
            row = self._find(session_id)
            mine = row is not None and all(row[name] == value for name, value in self._me.items())
            if row is not None and not mine and _is_alive(row):
                host = "" if row["place"] == self._me["place"] else row["host"]
                raise session_busy(session_id, row["process"], host)
            if row is not None and mine:
                token: int = row["token"]
            else:
                token = self._db.execute(_ACQUIRE, session=session_id, **self._me).scalar()
            root = self._db.execute(_FIND_ROOT, session=session_id).scalar() or session_id
        self._held[session_id] = (token, root)
        return not mine

    def _find(self, session_id: str) -> dict[str, Any] | None:
        return next(self._db.execute(_FIND, session=session_id).dicts(), None)

    def renew(self, session_id: str) -> None:
        """Every transaction that locks a conversation has done that already."""

    def refuse_if_lost(self, root_id: str) -> None:
        """Inside a transaction that has just locked a conversation."""
        # Boundaries pass a token on: however many sessions there are, each token is renewed once.
        tokens = {token: session for session, (token, root) in self._held.items() if root == root_id}
        for token, session in tokens.items():
            if not self._renew(token):
                raise self._taken_over(session)

    def _renew(self, token: int) -> bool:
        return self._db.execute(_RENEW, token=token).rowcount > 0

    def _taken_over(self, session: str) -> StorageError:
        if self._db.execute(_SESSION_EXISTS, session=session).scalar() is None:
            return StorageError(
                f"session {session} is not in the database {self._db.place}",
                "It was deleted meanwhile. Start a new session.",
            )
        row = self._find(session)
        by = f" (process {row['process']} on {row['host']})" if row is not None else ""
        return StorageError(
            f"session {session} was taken over by another crushpy{by} while this one was suspended",
            "Nothing was written from here since. Open the session again to see its messages.",
        )

    def renew_all(self) -> float | None:
        for token in {token for token, _ in self._held.values()}:
            self._renew(token)
        return min(HEARTBEAT_S, _lease_timeout() / 4) if self._held else None

    def move(self, parent_id: str, child_id: str) -> None:
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
        for token in {token for token, _ in self._held.values()}:
            self._db.execute(_DELETE, token=token)
        self._held.clear()


def _is_alive(row: Mapping[str, Any]) -> bool:
    if row["silent"] >= _lease_timeout():
        return False
    if row["place"] != _place():
        return True
    return still_runs(row["process"], row["started"])


def _lease_timeout() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_LEASE_SECONDS"])) or LEASE_TIMEOUT_S
    except (KeyError, ValueError):
        return LEASE_TIMEOUT_S


def _place() -> str:
    """The scope of a process id: this boot of this machine, and this container on it."""
    found = platform.node()
    for source in (_boot, _namespace):
        with suppress(OSError):
            found += f" {source()}"
    return found


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
