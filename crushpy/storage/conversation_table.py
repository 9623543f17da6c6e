"""One row for each conversation, kept in the transaction of whatever changes it: what lists read.

Lives on the storage thread.
"""

from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from crushpy.storage.connection import Connection
from crushpy.storage.tables import conversations, sessions

_C = conversations.c
_S = sessions.c
DELETED = "deleted"
"""The kind of a session that is being deleted: nobody sees it any more."""

_ROOT_OF = select(_S.root_id).where(_S.id == bindparam("session"), _S.kind.not_in(("task", DELETED)))
_COUNT = (
    update(conversations)
    .where(_C.tip_id == bindparam("session"))
    .values(updated_at=bindparam("now"), messages=_C.messages + bindparam("many"))
)
# Where somebody spoke last; a session that has ended only where all have.
_TIP = (
    select(
        _S.id,
        _S.parent_id,
        _S.cwd,
        _S.title,
        _S.model,
        _S.updated_at,
        _S.ended_at,
        _S.generation,
        _S.imported,
    )
    .where(_S.root_id == bindparam("root"), _S.kind.not_in(("task", DELETED)))
    .order_by(_S.ended_at.is_not(None), _S.updated_at.desc(), _S.generation.desc())
    .limit(1)
)
_up = select(_S.id, _S.parent_id, _S.message_count).where(_S.id == bindparam("tip")).cte(recursive=True)
_parent = sessions.alias()
# A union of different rows only: a circle of parents, which nobody should have, ends here.
_up = _up.union(
    select(_parent.c.id, _parent.c.parent_id, _parent.c.message_count).join(
        _up, _parent.c.id == _up.c.parent_id
    )
)
_MESSAGES = select(func.sum(_up.c.message_count))
_FORGET = delete(conversations).where(_C.root_id == bindparam("root"))


class ConversationTable:
    def __init__(self, connection: Connection) -> None:
        self._execute = connection.execute

    def counted(self, session_id: str, now: float, many: int) -> None:
        """So many messages more were stored in a session."""
        if self._execute(_COUNT, {"session": session_id, "now": now, "many": many}).rowcount:
            return
        root = self._execute(_ROOT_OF, {"session": session_id}).scalar()
        if root is not None:  # a branch that somebody speaks in again
            self.refresh(root)

    def changed(self, session_id: str) -> None:
        """What a list shows of a session may have changed."""
        root = self._execute(_ROOT_OF, {"session": session_id}).scalar()
        if root is not None:
            self.refresh(root)

    def refresh(self, root_id: str) -> None:
        """Makes the row anew from the sessions there are."""
        self._execute(_FORGET, {"root": root_id})
        tip = self._execute(_TIP, {"root": root_id}).first()
        if tip is None:
            return
        row: dict[str, Any] = {
            "root_id": root_id,
            "tip_id": tip.id,
            "cwd": tip.cwd,
            "title": tip.title,
            "model": tip.model,
            "updated_at": tip.updated_at,
            "is_open": tip.ended_at is None,
            "generations": tip.generation + 1,
            "messages": self._execute(_MESSAGES, {"tip": tip.id}).scalar() or 0,
            "imported": tip.imported,
        }
        self._execute(insert(conversations), row)

    def forget(self, root_id: str) -> None:
        self._execute(_FORGET, {"root": root_id})
