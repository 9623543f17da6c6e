"""Boundaries: one transaction each, and the walks along them. Lives on the storage thread."""

import time
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from sqlalchemy import func, insert, select, update

from crushpy.errors import UsageError
from crushpy.messages import Cut, Message, Usage
from crushpy.sanitize import encodable
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED, ConversationTable
from crushpy.storage.lease_holder import LeaseHolder
from crushpy.storage.records import BoundaryInfo, Carried, SessionInfo, StorageError
from crushpy.storage.row_mapping import (
    boundary_from_row,
    boundary_to_row,
    message_from_row,
    session_from_row,
    usage_from_column,
)
from crushpy.storage.session_table import SessionTable
from crushpy.storage.system_prompts import SESSIONS, insert_session
from crushpy.storage.tables import boundaries, cuts, ledgers, messages, sessions

_B = boundaries.c
_M = messages.c
_S = sessions.c
BATCH = 500
"""Ids in one statement: databases bound its values."""
EVERYTHING = 2**63 - 1
FORK = "fork"
END_REASONS = {"agent": "new_session"}
"""How a session ended, where it is not the trigger's own name."""


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

    # --- writes ----------------------------------------------------------------------------------------

    def add(
        self,
        boundary: BoundaryInfo,
        child: SessionInfo,
        seed: Message | None,
        shown: Sequence[Cut],
        result: Message | None,
        ledger: str,
    ) -> None:
        """The parent's last result, its end, the child, its seed, the boundary, its ledger and cuts, and the
        lease: in one transaction."""
        with self._connection.transaction(durable=True, session=boundary.parent_id):
            if result is not None:
                self._sessions.append(boundary.parent_id, result)
            if boundary.trigger != FORK:
                self._refuse_second(boundary.parent_id)
                reason = END_REASONS.get(boundary.trigger, boundary.trigger)
                ended = self._execute(
                    update(sessions).where(_S.id == boundary.parent_id),
                    {"end_reason": reason, "ended_at": boundary.created_at},
                )
                self._sessions.require(ended.rowcount, boundary.parent_id)
            insert_session(self._connection, child)
            self._conversations.refresh(child.root_id)
            if seed is not None:
                self._sessions.append(child.id, seed)
            self._execute(insert(boundaries), boundary_to_row(boundary))
            if ledger:
                self._execute(insert(ledgers), {"session_id": child.id, "facts": encodable(ledger)})
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
        statement = (
            select(_B.child_id)
            .where(_B.parent_id == session_id, _B.undone_at.is_(None), _B.trigger != FORK)
            .order_by(_B.created_at.desc())
        )
        return self._execute(statement).scalar()

    def ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one; empty where none were stored."""
        statement = select(ledgers.c.facts).where(ledgers.c.session_id == session_id)
        return self._execute(statement).scalar() or ""

    def add_cuts(self, session_id: str, shown: Sequence[Cut]) -> None:
        with self._connection.transaction(durable=True, session=session_id):
            self._leases.beat(session_id)
            self._insert_cuts(session_id, shown)

    def _insert_cuts(self, session_id: str, shown: Sequence[Cut]) -> None:
        for cut in {cut.message_id: cut for cut in shown}.values():
            row = {"session_id": session_id, **msgspec.structs.asdict(cut)}
            self._connection.replace(cuts, row)

    def reported(self, child_id: str, tokens: int) -> None:
        with self._connection.transaction(session=child_id):
            self._execute(
                update(boundaries).where(_B.child_id == child_id, _B.reported_after.is_(None)),
                {"reported_after": tokens},
            )

    def undo(self, boundary_id: str, note: Message) -> None:
        this = select(boundaries).where(_B.id == boundary_id)
        with self._connection.transaction(durable=True, session=self._execute(this).one().parent_id):
            row = self._execute(this).one()
            if row.undone_at is not None:
                raise UsageError(f"The fresh start before session {row.child_id} was undone already.")
            now = time.time()
            self._execute(update(boundaries).where(_B.id == boundary_id), {"undone_at": now})
            self._execute(update(sessions).where(_S.id == row.child_id), {"kind": FORK})
            self._execute(
                update(sessions).where(_S.id == row.parent_id), {"ended_at": None, "end_reason": ""}
            )
            self._sessions.append(row.parent_id, note)
            self._conversations.changed(row.parent_id)

    # --- walks -----------------------------------------------------------------------------------------

    def carried(self, session_id: str) -> Carried:
        boundary = self._opening(session_id)
        rows = self._execute(select(cuts).where(cuts.c.session_id == session_id))
        undone = self._execute(
            select(_B.id).where(_B.parent_id == session_id, _B.undone_at.is_not(None)).limit(1)
        ).first()
        return Carried(
            self._in_order(boundary.tail) if boundary else (),
            tuple(Cut(row.message_id, row.head, row.tail, row.kind, row.made_after) for row in rows),
            undone is not None,
        )

    def _in_order(self, ids: Sequence[str]) -> tuple[Message, ...]:
        found: dict[str, Message] = {}
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            rows = self._execute(select(messages).where(messages.c.id.in_(batch)))
            found |= {row.id: message_from_row(row) for row in rows}
        return tuple(found[one] for one in ids if one in found)

    def _opening(self, session_id: str) -> BoundaryInfo | None:
        """The boundary (or fork) that opened this session."""
        row = self._execute(select(boundaries).where(_B.child_id == session_id)).first()
        return boundary_from_row(row) if row else None

    def before(self, session_id: str) -> BoundaryInfo | None:
        boundary = self._opening(session_id)
        return None if boundary is None or boundary.trigger == FORK else boundary

    def of_conversation(self, root_id: str) -> list[BoundaryInfo]:
        rows = self._execute(
            select(boundaries)
            .join(sessions, _S.id == _B.child_id)
            .where(_S.root_id == root_id)
            .order_by(_B.created_at)
        )
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
        rows = self._execute(
            SESSIONS.where(_S.root_id == root_id, _S.kind != DELETED).order_by(_S.created_at, _S.generation)
        )
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
            statement = select(messages).where(_M.session_id == session, _M.number <= last).order_by(_M.seq)
            found += [message_from_row(row) for row in self._execute(statement)]
        return found

    def lineage_usage(self, session_id: str) -> list[tuple[str, Usage]]:
        """What each model call from the root to this session reported, with the session it was made in."""
        found: list[tuple[str, Usage]] = []
        for session, last in self.reach(session_id):
            statement = (
                select(_M.usage)
                .where(_M.session_id == session, _M.number <= last, _M.usage.is_not(None))
                .order_by(_M.seq)
            )
            found += [(session, usage_from_column(usage)) for usage in self._execute(statement).scalars()]
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
            return max(self._numbers(parent, boundary.tail), default=0)
        first = self._execute(select(func.min(_M.number)).where(_M.session_id == child.id)).scalar()
        if first is not None:
            return first - 1
        own = select(func.max(_M.number)).where(_M.session_id == parent.id, _M.created_at <= child.created_at)
        return self._execute(own).scalar() or 0

    def _numbers(self, session: SessionInfo, ids: Sequence[str]) -> list[int]:
        """The numbers of those messages that are the session's own."""
        found: list[int] = []
        for start in range(0, len(ids), BATCH):
            own = select(_M.number).where(_M.session_id == session.id, _M.id.in_(ids[start : start + BATCH]))
            found += self._execute(own).scalars()
        return found
