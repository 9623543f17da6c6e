"""`store.boundaries`: one transaction for each boundary, and what is carried across it."""

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from crushpy.core.boundary import BRANCH, FORK, RETURN, StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, MessageOverride
from crushpy.storage import session_rows
from crushpy.storage.generated import statements as sql
from crushpy.storage.records import Carried, SessionInfo
from crushpy.storage.search_store import load_search_reach
from crushpy.storage.storage_thread import Subject, stored, written

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
        fork: StoredBoundary | None = None,
    ) -> None:
        """Ends the parent and opens the child, in one transaction: the parent's last `result`, its end, the
        child, its first message (`seed`), the boundary, the facts of all sessions before the child
        (`ledger`), its overrides and the lease. `facts` are those of result and seed. For a branch that
        returns the child is the session it left, open again as it is now, or a `fork` of that."""
        db, parent_id = self._db, boundary.parent_id
        with db.transaction(durable=True, session=parent_id):
            if result is not None:
                session_rows.append_messages(db, parent_id, result, facts=facts)
            if boundary.trigger != FORK:
                session_rows.refuse_second(db, parent_id)
                reason = END_REASONS.get(boundary.trigger, boundary.trigger)
                ended = db.execute(
                    sql.END_SESSION, session=parent_id, reason=reason, moment=boundary.created_at
                )
                session_rows.require_session(db, ended.rowcount, parent_id)
            if boundary.trigger == RETURN and fork is None:
                row = session_rows.to_row(child) | {"end_reason": "", "ended_at": None}
                session_rows.change_session(db, child.id, row)
            else:
                session_rows.insert_session(db, child)
            session_rows.refresh_conversation(db, child.root_id)
            if seed is not None:
                session_rows.append_messages(db, child.id, seed, facts=facts)
            for added in filter(None, (boundary, fork)):
                db.execute(sql.INSERT_BOUNDARY, **session_rows.to_row(added))
            if ledger:
                db.execute(sql.INSERT_LEDGER, session_id=child.id, facts=ledger)
            self._save_overrides(child.id, overrides)
            if boundary.trigger != FORK:
                db.leases.move(parent_id, child.id)

    @written()
    def record_reported_tokens(self, child_id: str, tokens: int) -> None:
        """Records the usage that the child's first reply reported."""
        self._db.execute(sql.SET_REPORTED_TOKENS, session=child_id, tokens=tokens)

    @stored
    def undo(self, boundary_id: str, *notes: Message) -> None:
        """Makes the parent the tip again, with `notes` as its next messages; the child stays as a fork. After
        a return the branch is the tip again, and its parent waits for it.

        The caller holds the lease of the parent.
        """
        db = self._db
        parent = db.execute(sql.GET_BOUNDARY, boundary=boundary_id).one().parent_id
        with db.transaction(durable=True, session=parent):
            row = db.execute(sql.GET_BOUNDARY, boundary=boundary_id).one()
            if row.undone_at is not None:
                raise UsageError(f"The compaction before session {row.child_id} was undone already.")
            db.execute(sql.SET_BOUNDARY_UNDONE, boundary=boundary_id, now=time.time())
            if row.trigger == RETURN:
                db.execute(sql.END_SESSION, session=row.child_id, reason=BRANCH, moment=time.time())
            else:
                db.execute(sql.SET_SESSION_KIND, session=row.child_id, new_kind=FORK)
            db.execute(sql.END_SESSION, session=row.parent_id, reason="", moment=None)  # open again
            session_rows.append_messages(db, row.parent_id, *notes)
            session_rows.refresh_conversation_of(db, row.parent_id)

    # --- overrides -------------------------------------------------------------------------------------

    def _save_overrides(self, session_id: str, overrides: Sequence[MessageOverride]) -> None:
        rows = [{"session_id": session_id, **msgspec.structs.asdict(override)} for override in overrides]
        self._db.execute_many(sql.SAVE_OVERRIDE, rows)

    @written(durable=True)
    def add_overrides(self, session_id: str, overrides: Sequence[MessageOverride]) -> None:
        """Stores overrides of a session. Its forks keep what they inherited, as overrides of their own."""
        session, continued = self._db.execute(sql.FIND_SESSION, session=session_id).one(), {session_id}
        for other in self._db.execute(sql.LIST_SESSIONS, root=session.root_id):  # parents come first
            if other.parent_id in continued and other.kind != FORK:
                continued.add(other.id)
            elif other.parent_id in continued:
                known = {made.message_id: made for made in self._list_overrides(other.id)}
                names = [override.message_id for override in overrides]
                kept = [known.get(name, MessageOverride(name, kind="restore")) for name in names]
                self._save_overrides(other.id, kept)
        self._save_overrides(session_id, overrides)

    @stored
    def load_overrides(self, session_id: str, *, aside: bool = False) -> list[MessageOverride]:
        """The overrides of this session and of those it continues, the first session's first. Before them, if
        `aside`, those of branches and tasks that a search finds."""
        return self._list_overrides(session_id, load_search_reach(self._db, session_id) if aside else ())

    def _list_overrides(self, session_id: str, aside: Iterable[str] = ()) -> list[MessageOverride]:
        lineage = [session.id for session in session_rows.load_lineage(self._db, session_id)]
        sessions = (*set(aside).difference(lineage), *lineage)
        found = (self._db.execute(sql.LIST_OVERRIDES, session=session) for session in sessions)
        return [override for rows in found for override in rows]

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
        found = {row.id: session_rows.from_row(Message, row) for row in rows}
        tail = tuple(found[id_] for id_ in ids if id_ in found)
        return Carried(tail, overrides, undone is not None)

    @stored
    def find_opening(self, session_id: str) -> StoredBoundary | None:
        """The boundary that opened this session, undone or not; None for a root and for a session that the
        user forked."""
        boundary = session_rows.find_opening(self._db, session_id)
        return None if boundary is None or boundary.trigger == FORK else boundary

    @stored
    def load_conversation(self, root_id: str, *, returns: bool = False) -> list[StoredBoundary]:
        """All boundaries that opened sessions of a conversation, oldest first; or the `returns` of its
        branches, without those undone."""
        rows = self._db.execute(sql.LIST_RETURNS if returns else sql.LIST_BOUNDARIES, root=root_id)
        return [session_rows.from_row(StoredBoundary, row) for row in rows]

    @stored
    def load_reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did."""
        return session_rows.load_reach(self._db, session_id)
