"""One writer at a time over several machines: a heartbeat by the server's clock, and a token that fences.

A process that stood still for long, and whose lease another one took meanwhile, finds another token, or no
row, at its next write to any session of that conversation: it is refused, even where the other is gone.
"""

import os
import platform
from contextlib import suppress
from pathlib import Path

from crushpy.storage.lease_holder import LeaseHolder, session_busy
from crushpy.storage.postgres.connection import PostgresConnection
from crushpy.storage.records import StorageError
from crushpy.storage.rows import Row
from crushpy.util.processes import started_at, still_runs

BEAT_SECONDS = 10.0
SILENT_SECONDS = 45.0
"""After so long without a heartbeat a process counts as dead; `CRUSHPY_LEASE_SECONDS` sets it."""

_FIND = (
    "SELECT lease.*, extract(epoch FROM clock_timestamp() - heartbeat) AS silent "
    "FROM lease WHERE session_id = :session"
)
_ROOT = "SELECT root_id FROM session WHERE id = :session"
_TAKE = (
    "INSERT INTO lease VALUES "
    "(:session, :process, :started, :host, :place, clock_timestamp(), nextval('lease_token')) "
    "ON CONFLICT (session_id) DO UPDATE SET process = excluded.process, started = excluded.started, "
    "host = excluded.host, place = excluded.place, heartbeat = excluded.heartbeat, token = excluded.token "
    "RETURNING token"
)
_BEAT = "UPDATE lease SET heartbeat = clock_timestamp() WHERE token = :token"
_MOVE = "UPDATE lease SET session_id = :child WHERE session_id = :session AND token = :token"
_DROP = "DELETE FROM lease WHERE token = :token"
_THERE = "SELECT 1 FROM session WHERE id = :session AND kind <> 'deleted'"


class PostgresLeases(LeaseHolder):
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._me = {
            "process": os.getpid(),
            "started": started_at(os.getpid()),
            "host": platform.node(),
            "place": _place(),
        }
        self._held: dict[str, tuple[int, str]] = {}
        """Sessions this store took: the token, and the conversation."""
        connection.on_lock = self._refuse_if_lost

    def take(self, session_id: str) -> bool:
        self._held.pop(session_id, None)
        with self._connection.transaction(session=session_id):
            row = self._execute(_FIND, {"session": session_id}).first()
            mine = row is not None and all(getattr(row, name) == value for name, value in self._me.items())
            if row is not None and not mine and _alive(row):
                raise session_busy(session_id, row.process, self._elsewhere(row))
            if row is not None and mine:
                token: int = row.token
            else:
                token = self._execute(_TAKE, {"session": session_id, **self._me}).scalar()
            root = self._execute(_ROOT, {"session": session_id}).scalar() or session_id
        self._held[session_id] = (token, root)
        return not mine

    def beat(self, session_id: str) -> None:
        """Every transaction that locks a conversation has done that already."""

    def _refuse_if_lost(self, root_id: str) -> None:
        # Fresh starts hand a token on: however many sessions there are, each token is asked for once.
        tokens = {token: session for session, (token, root) in self._held.items() if root == root_id}
        for token, session in tokens.items():
            if not self._beats(token):
                raise self._taken_over(session)

    def _beats(self, token: int) -> bool:
        return self._execute(_BEAT, {"token": token}).rowcount > 0

    def _taken_over(self, session: str) -> StorageError:
        if self._execute(_THERE, {"session": session}).first() is None:
            return StorageError(
                f"session {session} is not in the database {self._connection.place}",
                "It was deleted meanwhile. Start a new session.",
            )
        row = self._execute(_FIND, {"session": session}).first()
        by = f" (process {row.process} on {row.host})" if row is not None else ""
        return StorageError(
            f"session {session} was taken over by another crushpy{by} while this one stood still",
            "Nothing was written from here since. Open the session again to see what it holds now.",
        )

    def beat_all(self) -> float | None:
        for token in {token for token, _ in self._held.values()}:
            self._beats(token)
        return min(BEAT_SECONDS, _silent_seconds() / 4) if self._held else None

    def move(self, parent_id: str, child_id: str) -> None:
        held = self._held.get(parent_id)
        if held is not None:
            self._execute(_MOVE, {"session": parent_id, "token": held[0], "child": child_id})
            self._held[child_id] = held  # it is the token that counts, also where this is not committed

    def drop(self) -> None:
        for token in {token for token, _ in self._held.values()}:
            self._execute(_DROP, {"token": token})
        self._held.clear()

    def drop_one(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None:
            self._execute(_DROP, {"token": held[0]})
            self._held = {session: one for session, one in self._held.items() if one != held}

    def _elsewhere(self, row: Row) -> str:
        return "" if row.place == self._me["place"] else row.host


def _alive(row: Row) -> bool:
    if row.silent >= _silent_seconds():
        return False
    if row.place != _place():
        return True
    return still_runs(row.process, row.started)


def _silent_seconds() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_LEASE_SECONDS"])) or SILENT_SECONDS
    except (KeyError, ValueError):
        return SILENT_SECONDS


def _place() -> str:
    """Where process ids mean the same: this start of this machine, and this container on it."""
    found = platform.node()
    for source in (_boot, _namespace):
        with suppress(OSError):
            found += f" {source()}"
    return found


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
