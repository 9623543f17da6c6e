"""One row for each conversation, kept in the transaction of whatever changes it: what lists read.

Lives on the storage thread.
"""

from typing import Any

from crushpy.storage.connection import Connection

DELETED = "deleted"
"""The kind of a session that is being deleted: nobody sees it any more."""

_SHOWN = f"kind NOT IN ('task', '{DELETED}')"
_ROOT_OF = f"SELECT root_id FROM session WHERE id = :session AND {_SHOWN}"  # noqa: S608  # our own words
_COUNT = "UPDATE conversation SET updated_at = :now, messages = messages + :many WHERE tip_id = :session"
# Where somebody spoke last; a session that has ended only where all have.
_TIP = f"""
    SELECT id, parent_id, cwd, title, model, updated_at, ended_at, generation, imported
    FROM session WHERE root_id = :root AND {_SHOWN}
    ORDER BY ended_at IS NOT NULL, updated_at DESC, generation DESC LIMIT 1
"""  # noqa: S608
# A union of different rows only: a circle of parents, which nobody should have, ends here.
_MESSAGES = """
    WITH RECURSIVE up (id, parent_id, message_count) AS (
        SELECT id, parent_id, message_count FROM session WHERE id = :tip
        UNION SELECT session.id, session.parent_id, session.message_count
        FROM session JOIN up ON session.id = up.parent_id
    )
    SELECT sum(message_count) FROM up
"""
_FORGET = "DELETE FROM conversation WHERE root_id = :root"


class ConversationTable:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
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
        self._connection.insert("conversation", row)

    def forget(self, root_id: str) -> None:
        self._execute(_FORGET, {"root": root_id})
