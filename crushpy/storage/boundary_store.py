"""`store.boundaries`: one transaction for each boundary, and what is carried across it."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from crushpy.core.boundary import StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, MessageOverride
from crushpy.storage import session_rows
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import Carried, SessionInfo, StorageError
from crushpy.storage.storage_thread import Subject, stored

END_REASONS = {"agent": "new_session"}
"""How a session ended, if it is not the trigger's own name."""


class BoundaryStore(Subject):
    @stored
    def add(
        self,
        boundary: StoredBoundary,
        child: SessionInfo,
        seed: Message | None,
        *,
        overrides: Sequence[MessageOverride] = (),
        result: Message | None = None,
        ledger: str = "",
        facts: Mapping[str, Data] = MappingProxyType({}),
    ) -> None:
        """Ends the parent and opens the child, in one transaction: the parent's last `result`, its end, the
        child, its seed, the boundary, the facts of all sessions before the child (`ledger`), its overrides
        (`overrides`) and the lease. `facts` are those of result and seed."""
        db, parent_id = self._db, boundary.parent_id
        with db.transaction(durable=True, session=parent_id):
            if result is not None:
                session_rows.append_messages(db, parent_id, result, facts=facts)
            if boundary.trigger != session_rows.FORK:
                self._refuse_second(parent_id)
                reason = END_REASONS.get(boundary.trigger, boundary.trigger)
                ended = db.execute(
                    sql.END_SESSION, session=parent_id, reason=reason, moment=boundary.created_at
                )
                session_rows.require_session(db, ended.rowcount, parent_id)
            session_rows.insert_session(db, child)
            session_rows.refresh_conversation(db, child.root_id)
            if seed is not None:
                session_rows.append_messages(db, child.id, seed, facts=facts)
            db.execute(sql.INSERT_BOUNDARY, **session_rows.boundary_to_row(boundary))
            if ledger:
                db.execute(sql.INSERT_LEDGER, session_id=child.id, facts=ledger)
            self._save_overrides(child.id, overrides)
            if boundary.trigger != session_rows.FORK:
                db.leases.move(parent_id, child.id)

    def _refuse_second(self, parent_id: str) -> None:
        """A session continues in one child only."""
        child = session_rows.find_continuation(self._db, parent_id)
        if child is not None:
            raise StorageError(
                f"session {parent_id} continues in {child} already",
                f"Another process continued it: open {child}, or undo that compaction.",
            )

    @stored
    def record_reported_tokens(self, child_id: str, tokens: int) -> None:
        """Records the usage that the child's first reply reported."""
        with self._db.transaction(session=child_id):
            self._db.execute(sql.SET_REPORTED_TOKENS, session=child_id, tokens=tokens)

    @stored
    def undo(self, boundary_id: str, note: Message) -> None:
        """Makes the parent the tip again, with `note` as its next message; the child stays as a fork.

        The caller holds the lease of the parent.
        """
        db = self._db
        parent = db.execute(sql.GET_BOUNDARY, boundary=boundary_id).one().parent_id
        with db.transaction(durable=True, session=parent):
            row = db.execute(sql.GET_BOUNDARY, boundary=boundary_id).one()
            if row.undone_at is not None:
                raise UsageError(f"The compaction before session {row.child_id} was undone already.")
            db.execute(sql.SET_BOUNDARY_UNDONE, boundary=boundary_id, now=time.time())
            db.execute(sql.SET_SESSION_KIND, session=row.child_id, new_kind=session_rows.FORK)
            db.execute(sql.END_SESSION, session=row.parent_id, reason="", moment=None)  # open again
            session_rows.append_messages(db, row.parent_id, note)
            session_rows.refresh_conversation_of(db, row.parent_id)

    # --- overrides -------------------------------------------------------------------------------------

    @stored
    def add_overrides(self, session_id: str, overrides: Sequence[MessageOverride]) -> None:
        with self._db.transaction(durable=True, session=session_id):
            self._save_overrides(session_id, overrides)

    def _save_overrides(self, session_id: str, overrides: Sequence[MessageOverride]) -> None:
        rows = [{"session_id": session_id, **msgspec.structs.asdict(override)} for override in overrides]
        self._db.execute_many(sql.SAVE_OVERRIDE, rows)

    @stored
    def load_overrides(self, session_id: str) -> list[MessageOverride]:
        """The overrides of this session and of those it continues, the first session's first."""
        return [
            override
            for session in session_rows.load_lineage(self._db, session_id)
            for override in self._db.execute(sql.LIST_OVERRIDES, session=session.id)
        ]

    # --- reading ---------------------------------------------------------------------------------------

    @stored
    def load_ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one, as stored with its boundary; empty without one."""
        return self._db.execute(sql.FIND_LEDGER, session=session_id).scalar() or ""

    @stored
    def load_carried(self, session_id: str) -> Carried:
        """What a session's requests contain beside its own messages."""
        boundary = session_rows.find_opening(self._db, session_id)
        overrides = tuple(self._db.execute(sql.LIST_OVERRIDES, session=session_id))
        undone = self._db.execute(sql.FIND_UNDONE_BOUNDARY, session=session_id, many=1).scalar()
        ids = boundary.tail if boundary else ()
        rows = self._db.execute(sql.LIST_MESSAGES_BY_ID, ids=session_rows.json_text(ids))
        found = {row.id: session_rows.message_from_row(row) for row in rows}
        tail = tuple(found[one] for one in ids if one in found)
        return Carried(tail, overrides, undone is not None)

    @stored
    def find_opening(self, session_id: str) -> StoredBoundary | None:
        """The boundary that opened this session, undone or not; None for a root and for a session that the
        user forked."""
        boundary = session_rows.find_opening(self._db, session_id)
        return None if boundary is None or boundary.trigger == session_rows.FORK else boundary

    @stored
    def load_conversation(self, root_id: str) -> list[StoredBoundary]:
        """All boundaries of a conversation, oldest first."""
        return list(map(session_rows.boundary_from_row, self._db.execute(sql.LIST_BOUNDARIES, root=root_id)))

    @stored
    def load_reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did."""
        return session_rows.load_reach(self._db, session_id)
