"""System prompts: each different text is stored once, by its hash. Lives on the storage thread.

A session names its prompt in `system_hash`. Those that an older crushpy stored have the text in `system`,
until `convert_some` comes to them.
"""

from hashlib import sha256

from crushpy.security.sanitize import encodable
from crushpy.storage.connection import Connection
from crushpy.storage.records import SessionInfo
from crushpy.storage.row_mapping import SESSION_COLUMNS, session_to_row

_BATCH = 20
# A row that is there is touched, so that nobody takes it away before the session is stored.
_KEEP = (
    "INSERT INTO system_prompt (hash, text) VALUES (:hash, :text) "
    "ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash"
)
_LOCK = "SELECT hash FROM system_prompt WHERE hash = :hash"
_DROP = (
    "DELETE FROM system_prompt WHERE hash = :hash "
    "AND NOT EXISTS (SELECT 1 FROM session WHERE system_hash = :hash)"
)
_HASH_OF = "SELECT system_hash FROM session WHERE id = :session"
_CHORE = "SELECT state FROM chore WHERE name = 'prompts'"
_SET_CHORE = "UPDATE chore SET state = :state WHERE name = 'prompts'"
_NO_CHORE = "DELETE FROM chore WHERE name = 'prompts'"
_OLD = "SELECT id, system FROM session WHERE id > :last ORDER BY id LIMIT :many"
_CONVERT = "UPDATE session SET system = '', system_hash = :hash WHERE id = :session AND system = :text"

PROMPT = (
    "coalesce((SELECT text FROM system_prompt WHERE hash = session.system_hash), session.system) AS system"
)
"""The prompt of a session, wherever that is."""
SESSIONS = f"SELECT {', '.join(SESSION_COLUMNS)}, {PROMPT} FROM session"  # noqa: S608  # our own names
"""Sessions with their prompts."""


class SystemPrompts:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def keep(self, prompt: str) -> str:
        """Inside the transaction that names it: stores a text where it is not there yet. Its hash."""
        if not prompt:
            return ""
        prompt = encodable(prompt)
        name = sha256(prompt.encode()).hexdigest()
        self._execute(_KEEP, {"hash": name, "text": prompt})
        return name

    def of(self, session_id: str) -> str:
        """The hash that a session names; empty where it names none."""
        return self._execute(_HASH_OF, {"session": session_id}).scalar() or ""

    def drop(self, name: str) -> None:
        """Inside the transaction that took a session's name for it away: the text goes with the last one."""
        if name:
            self._execute(_LOCK + self._connection.dialect.locking, {"hash": name}).first()
            self._execute(_DROP, {"hash": name})

    def convert_some(self) -> bool:
        """Stores the prompts of some old sessions as new ones are. False where none is left."""
        last = self._execute(_CHORE).scalar()
        if last is None:
            return False
        rows = self._execute(_OLD, {"last": last, "many": _BATCH}).all()
        with self._connection.transaction():
            for row in rows:
                if row.system:
                    values = {"session": row.id, "text": row.system, "hash": self.keep(row.system)}
                    self._execute(_CONVERT, values)
            self._execute(*((_SET_CHORE, {"state": rows[-1].id}) if rows else (_NO_CHORE, {})))
        return bool(rows)


def insert_session(connection: Connection, info: SessionInfo) -> None:
    """Inside a transaction: a new session, and its prompt where nobody had the same."""
    name = SystemPrompts(connection).keep(info.system)
    connection.insert("session", session_to_row(info) | {"system": "", "system_hash": name})
