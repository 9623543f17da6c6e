"""One writer at a time: a row says which process it is. A dead process's row is taken over."""

import os
import platform
import time

from crushpy.storage.connection import Connection
from crushpy.storage.lease_holder import LeaseHolder, session_busy
from crushpy.storage.rows import Row
from crushpy.util.processes import started_at, still_runs

_MINE = "process = :process AND host = :host"
_BEAT = f"UPDATE lease SET heartbeat = :now WHERE session_id = :session AND {_MINE}"  # noqa: S608  # our own words
_MOVE = "UPDATE lease SET session_id = :child WHERE session_id = :session"
_FIND = "SELECT * FROM lease WHERE session_id = :session"
_DROP = f"DELETE FROM lease WHERE session_id = :session AND {_MINE}"  # noqa: S608
ELSEWHERE_PATIENCE = 15 * 60.0
"""Seconds after which a silent process on another machine counts as dead."""


class SqliteLeases(LeaseHolder):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._me = {"process": os.getpid(), "started": started_at(os.getpid()), "host": platform.node()}
        self._held: set[str] = set()
        """Sessions this process took, and has not let go of."""

    def take(self, session_id: str) -> bool:
        with self._connection.transaction():
            fresh = self._take(session_id)
        self._held.add(session_id)
        return fresh

    def beat(self, session_id: str) -> None:
        if session_id not in self._held:
            return
        beat = self._execute(_BEAT, {**self._me, "session": session_id, "now": time.time()})
        if not beat.rowcount:
            self._take(session_id)  # another process took it over; raises while that one lives

    def beat_all(self) -> None:
        """Others see by the process itself whether it lives."""

    def move(self, parent_id: str, child_id: str) -> None:
        self.beat(parent_id)
        self._execute(_MOVE, {"session": parent_id, "child": child_id})
        if parent_id in self._held:
            self._held.add(child_id)

    def _take(self, session_id: str) -> bool:
        row = self._execute(_FIND, {"session": session_id}).first()
        if row is not None and not self._mine(row) and _alive(row):
            raise session_busy(session_id, row.process, "" if row.host == platform.node() else row.host)
        lease = {"session_id": session_id, "heartbeat": time.time(), **self._me}
        self._connection.replace("lease", lease, "session_id")
        return row is None or not self._mine(row)

    def drop(self) -> None:
        with self._connection.transaction():
            self._execute(_DROP, [{**self._me, "session": session} for session in self._held])
        self._held.clear()

    def drop_one(self, session_id: str) -> None:
        with self._connection.transaction():
            self._execute(_DROP, {**self._me, "session": session_id})
        self._held.discard(session_id)

    def _mine(self, row: Row) -> bool:
        return all(getattr(row, name) == value for name, value in self._me.items())


def _alive(row: Row) -> bool:
    if row.host != platform.node():
        return time.time() - row.heartbeat < ELSEWHERE_PATIENCE
    return still_runs(row.process, row.started)
