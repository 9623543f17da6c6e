"""Boundaries: one transaction each, and the walks along them. Lives on the storage thread."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Cut, Data, Message, Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED, ConversationTable
from crushpy.storage.lease_holder import LeaseHolder
from crushpy.storage.records import EVERYTHING, BoundaryInfo, Carried, SessionInfo, StorageError
from crushpy.storage.row_mapping import (
    boundary_from_row,
    boundary_to_row,
    message_from_row,
    session_from_row,
    usage_from_column,
)
from crushpy.storage.session_table import SessionTable
from crushpy.storage.system_prompts import SESSIONS, insert_session

FORK = "fork"
END_REASONS = {"agent": "new_session"}
"""How a session ended, where it is not the trigger's own name."""
_CONTINUED_IN = f"""
    SELECT child_id FROM boundary WHERE parent_id = :session AND undone_at IS NULL AND trigger != '{FORK}'
    ORDER BY created_at DESC
"""  # noqa: S608  # our own words
_LEDGER = "SELECT facts FROM ledger WHERE session_id = :session"
_REPORTED = (
    "UPDATE boundary SET reported_after = :tokens WHERE child_id = :session AND reported_after IS NULL"
)
_BOUNDARY = "SELECT * FROM boundary WHERE id = :boundary"
_CUTS = "SELECT * FROM cut WHERE session_id = :session"
_UNDONE = "SELECT id FROM boundary WHERE parent_id = :session AND undone_at IS NOT NULL LIMIT 1"
_MESSAGES_OF = "SELECT * FROM message WHERE id IN ({})"
_OPENING = "SELECT * FROM boundary WHERE child_id = :session"
_OF_CONVERSATION = """
    SELECT boundary.* FROM boundary JOIN session ON session.id = boundary.child_id
    WHERE session.root_id = :root ORDER BY boundary.created_at
"""
_CONVERSATION = f"{SESSIONS} WHERE root_id = :root AND kind != '{DELETED}' ORDER BY created_at, generation"
_UP_TO = "SELECT * FROM message WHERE session_id = :session AND number <= :last ORDER BY seq"
_USED_UP_TO = """
    SELECT usage FROM message WHERE session_id = :session AND number <= :last AND usage IS NOT NULL
    ORDER BY seq
"""
_FIRST_NUMBER = "SELECT min(number) FROM message WHERE session_id = :session"
_LAST_BEFORE = "SELECT max(number) FROM message WHERE session_id = :session AND created_at <= :moment"
_LAST_OF = "SELECT max(number) FROM message WHERE session_id = :session AND id IN ({})"


class Boundaries:
    def __init__(
        self,
        connection: Connection,
        session_table: SessionTable,
        leases: LeaseHolder,
        conversations: ConversationTable,
    ) -> None:
        self._connection = connection
        self._conversations = conversations
        self._sessions = session_table
        self._leases = leases
        self._execute = connection.execute
        items = connection.dialect.items_of.format(":ids")
        self._messages_of, self._last_of = _MESSAGES_OF.format(items), _LAST_OF.format(items)

    # --- writes ----------------------------------------------------------------------------------------

    def add(
        self,
        boundary: BoundaryInfo,
        child: SessionInfo,
        seed: Message | None,
        shown: Sequence[Cut],
        result: Message | None,
        ledger: str,
        facts: Mapping[str, Data],
    ) -> None:
        """The parent's last result, its end, the child, its seed, the boundary, its ledger and cuts, and the
        lease: in one transaction."""
        with self._connection.transaction(durable=True, session=boundary.parent_id):
            if result is not None:
                self._sessions.append(boundary.parent_id, result, facts=facts)
            if boundary.trigger != FORK:
                self._refuse_second(boundary.parent_id)
                reason = END_REASONS.get(boundary.trigger, boundary.trigger)
                ended = {"end_reason": reason, "ended_at": boundary.created_at}
                self._sessions.require(self._set(boundary.parent_id, ended), boundary.parent_id)
            insert_session(self._connection, child)
            self._conversations.refresh(child.root_id)
            if seed is not None:
                self._sessions.append(child.id, seed, facts=facts)
            self._connection.insert("boundary", boundary_to_row(boundary))
            if ledger:
                self._connection.insert("ledger", {"session_id": child.id, "facts": encodable(ledger)})
            self._insert_cuts(child.id, shown)
            if boundary.trigger != FORK:
                self._leases.move(boundary.parent_id, child.id)

    def _refuse_second(self, parent_id: str) -> None:
        """A session goes on in one child only."""
        child = self.continued_in(parent_id)
        if child is not None:
            raise StorageError(
                f"session {parent_id} goes on in {child} already",
                f"Another process continued it: open {child}, or undo that fresh start.",
            )

    def continued_in(self, session_id: str) -> str | None:
        """The child in which a session goes on."""
        return self._execute(_CONTINUED_IN, {"session": session_id}).scalar()

    def _set(self, session_id: str, changes: Mapping[str, Any]) -> int:
        """Changes columns of a session; 0 where there is none."""
        return self._connection.update("session", "id = :session", {"session": session_id}, changes)

    def ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one; empty where none were stored."""
        return self._execute(_LEDGER, {"session": session_id}).scalar() or ""

    def add_cuts(self, session_id: str, shown: Sequence[Cut]) -> None:
        with self._connection.transaction(durable=True, session=session_id):
            self._leases.beat(session_id)
            self._insert_cuts(session_id, shown)

    def _insert_cuts(self, session_id: str, shown: Sequence[Cut]) -> None:
        for cut in {cut.message_id: cut for cut in shown}.values():
            row = {"session_id": session_id, **msgspec.structs.asdict(cut)}
            self._connection.replace("cut", row, "session_id", "message_id")

    def reported(self, child_id: str, tokens: int) -> None:
        with self._connection.transaction(session=child_id):
            self._execute(_REPORTED, {"session": child_id, "tokens": tokens})

    def undo(self, boundary_id: str, note: Message) -> None:
        this = {"boundary": boundary_id}
        parent = self._execute(_BOUNDARY, this).one().parent_id
        with self._connection.transaction(durable=True, session=parent):
            row = self._execute(_BOUNDARY, this).one()
            if row.undone_at is not None:
                raise UsageError(f"The fresh start before session {row.child_id} was undone already.")
            now = time.time()
            self._connection.update("boundary", "id = :boundary", this, {"undone_at": now})
            self._set(row.child_id, {"kind": FORK})
            self._set(row.parent_id, {"ended_at": None, "end_reason": ""})
            self._sessions.append(row.parent_id, note)
            self._conversations.changed(row.parent_id)

    # --- walks -----------------------------------------------------------------------------------------

    def carried(self, session_id: str) -> Carried:
        boundary = self._opening(session_id)
        rows = self._execute(_CUTS, {"session": session_id}).all()
        undone = self._execute(_UNDONE, {"session": session_id}).first()
        return Carried(
            self._in_order(boundary.tail) if boundary else (),
            tuple(Cut(row.message_id, row.head, row.tail, row.kind, row.made_after) for row in rows),
            undone is not None,
        )

    def _in_order(self, ids: Sequence[str]) -> tuple[Message, ...]:
        rows = self._execute(self._messages_of, {"ids": to_column(ids)})
        found = {row.id: message_from_row(row) for row in rows}
        return tuple(found[one] for one in ids if one in found)

    def _opening(self, session_id: str) -> BoundaryInfo | None:
        """The boundary (or fork) that opened this session."""
        row = self._execute(_OPENING, {"session": session_id}).first()
        return boundary_from_row(row) if row else None

    def before(self, session_id: str) -> BoundaryInfo | None:
        boundary = self._opening(session_id)
        return None if boundary is None or boundary.trigger == FORK else boundary

    def of_conversation(self, root_id: str) -> list[BoundaryInfo]:
        rows = self._execute(_OF_CONVERSATION, {"root": root_id})
        return [boundary_from_row(row) for row in rows]

    def tip(self, id_or_prefix: str) -> SessionInfo:
        info = self._sessions.find(id_or_prefix)
        seen = {info.id}
        while True:
            child = self.continued_in(info.id)
            if child is None or child in seen:  # a circle cannot hang the walk
                return info
            seen.add(child)
            info = self._sessions.find(child)

    def conversation(self, root_id: str) -> list[SessionInfo]:
        rows = self._execute(_CONVERSATION, {"root": root_id})
        return [session_from_row(row) for row in rows]

    def descendants(self, session_id: str) -> list[SessionInfo]:
        whole = self.conversation(self._sessions.find(session_id).root_id)
        found: dict[str, SessionInfo] = {}
        grown = True
        while grown:
            fresh = {s.id: s for s in whole if s.id == session_id or s.parent_id in found} if whole else {}
            grown = len(fresh) > len(found)
            found = fresh if grown else found
        return list(found.values())

    def lineage_messages(self, session_id: str) -> list[Message]:
        found: list[Message] = []
        for session, last in self.reach(session_id):
            rows = self._execute(_UP_TO, {"session": session, "last": last})
            found += [message_from_row(row) for row in rows]
        return found

    def lineage_usage(self, session_id: str) -> list[tuple[str, Usage]]:
        """What each model call from the root to this session reported, with the session it was made in."""
        found: list[tuple[str, Usage]] = []
        for session, last in self.reach(session_id):
            used = self._execute(_USED_UP_TO, {"session": session, "last": last}).scalars()
            found += [(session, usage_from_column(usage)) for usage in used]
        return found

    def reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did.

        What a session went on to say after an undo, or after a branch left it, does not count.
        """
        lineage = self._sessions.lineage(session_id)
        left = [self._left_at(parent, child) for parent, child in pairwise(lineage)]
        return list(zip((one.id for one in lineage), (*left, EVERYTHING), strict=False))  # none: not stored

    def _left_at(self, parent: SessionInfo, child: SessionInfo) -> int:
        """The number of the last message of `parent` before `child` left it. Numbers grow; clocks may not."""
        boundary = self._opening(child.id)
        if boundary is not None and boundary.trigger == FORK:
            own = {"session": parent.id, "ids": to_column(boundary.tail)}
            return self._execute(self._last_of, own).scalar() or 0
        first = self._execute(_FIRST_NUMBER, {"session": child.id}).scalar()
        if first is not None:
            return first - 1
        before = {"session": parent.id, "moment": child.created_at}
        return self._execute(_LAST_BEFORE, before).scalar() or 0
