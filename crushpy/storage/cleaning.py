"""Deletes conversations: unseen at once, gone from the file in small steps. Lives on the storage thread.

What is left over when a process ends is taken up by the next one that has time.
"""

from crushpy.storage.audit import Audit
from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED, ConversationTable
from crushpy.storage.search_index import SearchIndex, up_to
from crushpy.storage.system_prompts import SystemPrompts
from crushpy.util.login import login_name

_BATCH = 50
_BATCH_CHARS = 200_000
"""So much is deleted in one transaction: some milliseconds."""
_MARK = "UPDATE session SET kind = :deleted WHERE root_id = :root AND kind != :deleted"
_NO_LEASE = "DELETE FROM lease WHERE session_id IN (SELECT id FROM session WHERE root_id = :root)"
_SESSION = "SELECT id FROM session WHERE kind = 'deleted' LIMIT 1"
_MESSAGES = (
    "SELECT number, length(parts) AS size FROM message WHERE session_id = :session ORDER BY seq LIMIT :many"
)
_THERE = "SELECT number FROM message WHERE number IN ({})"
_DELETE_MESSAGES = "DELETE FROM message WHERE number IN ({})"
_DELETE_RUNS = (
    "DELETE FROM tool_run WHERE number IN "
    "(SELECT number FROM tool_run WHERE session_id = :session LIMIT :many)"
)
_DELETE_SESSION = "DELETE FROM session WHERE id = :session"
_CHORE = "SELECT state FROM chore WHERE name = 'merge'"
_SET_CHORE = (
    "INSERT INTO chore VALUES ('merge', :state) ON CONFLICT (name) DO UPDATE SET state = excluded.state"
)
_NO_CHORE = "DELETE FROM chore WHERE name = 'merge'"


class Cleaning:
    def __init__(
        self,
        connection: Connection,
        conversations: ConversationTable,
        index: SearchIndex,
        audit: Audit,
        prompts: SystemPrompts,
    ) -> None:
        self._connection = connection
        self._conversations = conversations
        self._index = index
        self._audit = audit
        self._prompts = prompts
        self._execute = connection.execute
        these = connection.dialect.numbers_of.format(":numbers")
        self._there = _THERE.format(these) + connection.dialect.locking
        self._delete_messages = _DELETE_MESSAGES.format(these)

    def mark(self, root_id: str) -> int:
        """From now on nobody sees this conversation; how many sessions it had. Its audit says so."""
        with self._connection.transaction(durable=True, session=root_id):
            return self.mark_in_transaction(root_id)

    def mark_in_transaction(self, root_id: str) -> int:
        marked = self._execute(_MARK, {"root": root_id, "deleted": DELETED}).rowcount
        if marked:
            self._conversations.forget(root_id)
            self._audit.append(root_id, [AuditEntry("deleted", {"by": login_name(), "sessions": marked})])
            self._execute(_NO_LEASE, {"root": root_id})
            self._execute(_SET_CHORE, {"state": "begin"})
        return marked

    def rows_left(self) -> bool:
        """Deletes some of what is marked, overwritten where possible. False where nothing is left of it."""
        session = self._execute(_SESSION).scalar()
        if session is None:
            return False
        values = {"session": session, "many": _BATCH}
        rows = up_to(self._execute(_MESSAGES, values).all(), _BATCH_CHARS)
        texts = self._index.texts([row.number for row in rows])
        numbers = {"numbers": to_column([row.number for row in rows])}
        with self._connection.overwriting(), self._connection.transaction():
            there = set(self._execute(self._there, numbers).scalars())  # others may clean up as well
            self._index.remove([text for text in texts if text.number in there])
            self._execute(self._delete_messages, numbers)
            if not rows and not self._execute(_DELETE_RUNS, values).rowcount:
                prompt = self._prompts.of(session)
                self._execute(_DELETE_SESSION, values)
                self._prompts.drop(prompt)
                self._execute(_SET_CHORE, {"state": "begin"})  # others may have thought that all was done
        return True

    def words_left(self) -> bool:
        """Takes some of the words of what was deleted out of the index. False where none is left in it."""
        state = self._execute(_CHORE).scalar()
        if state is None:
            return False
        more = self._index.merge_some(begin=state == "begin")
        if state == "begin" or not more:
            with self._connection.transaction():
                self._execute(*((_SET_CHORE, {"state": "go on"}) if more else (_NO_CHORE, {})))
        return more
