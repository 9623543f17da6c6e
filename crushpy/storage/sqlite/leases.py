"""One writer at a time: a row says which process it is. A dead process's row is taken over."""

import os
import platform
import time
from typing import Any

from sqlalchemy import ColumnElement, Row, bindparam, delete, select, update

from crushpy.processes import started_at, still_runs
from crushpy.storage.connection import Connection
from crushpy.storage.lease_holder import LeaseHolder, session_busy
from crushpy.storage.tables import leases

_L = leases.c
_BEAT = (
    update(leases)
    .where(_L.process == bindparam("me"), _L.host == bindparam("here"), _L.session_id == bindparam("session"))
    .values(heartbeat=bindparam("now"))
)
ELSEWHERE_PATIENCE = 15 * 60.0
"""Seconds after which a silent process on another machine counts as dead."""


class SqliteLeases(LeaseHolder):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
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
        here = {"me": self._me["process"], "here": self._me["host"], "session": session_id}
        if not self._connection.execute(_BEAT, {**here, "now": time.time()}).rowcount:
            self._take(session_id)  # another process took it over; raises while that one lives

    def beat_all(self) -> None:
        """Others see by the process itself whether it lives."""

    def move(self, parent_id: str, child_id: str) -> None:
        self.beat(parent_id)
        moved = update(leases).where(_L.session_id == parent_id)
        self._connection.execute(moved, {"session_id": child_id})
        if parent_id in self._held:
            self._held.add(child_id)

    def _take(self, session_id: str) -> bool:
        row = self._connection.execute(select(leases).where(_L.session_id == session_id)).first()
        if row is not None and not self._mine(row) and _alive(row):
            raise session_busy(session_id, row.process, "" if row.host == platform.node() else row.host)
        self._connection.replace(leases, {"session_id": session_id, "heartbeat": time.time(), **self._me})
        return row is None or not self._mine(row)

    def drop(self) -> None:
        with self._connection.transaction():
            held = _L.session_id.in_(self._held)
            self._connection.execute(delete(leases).where(*self._of_mine, held))
        self._held.clear()

    def drop_one(self, session_id: str) -> None:
        with self._connection.transaction():
            self._connection.execute(delete(leases).where(*self._of_mine, _L.session_id == session_id))
        self._held.discard(session_id)

    @property
    def _of_mine(self) -> tuple[ColumnElement[bool], ...]:
        return (_L.process == self._me["process"], _L.host == self._me["host"])

    def _mine(self, row: Row[Any]) -> bool:
        return all(getattr(row, name) == value for name, value in self._me.items())


def _alive(row: Row[Any]) -> bool:
    if row.host != platform.node():
        return time.time() - row.heartbeat < ELSEWHERE_PATIENCE
    return still_runs(row.process, row.started)
