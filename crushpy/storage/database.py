"""All reads and writes, on one open connection. Lives on the storage thread; `store.py` is its door.

SQLAlchemy builds and caches the statements; transactions are begun and ended here by hand, because its
own begin with a read and fail at once when two processes write.
"""

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from crushpy.errors import UsageError
from crushpy.messages import Message, Todo, ToolCall, Usage
from crushpy.sanitize import clean
from crushpy.storage import statements
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.codec import storable, to_column
from crushpy.storage.conversation_list import Shelf
from crushpy.storage.leases import Leases
from crushpy.storage.records import SessionInfo, StorageError
from crushpy.storage.rows import message_from_row, message_to_row, session_from_row, session_to_row
from crushpy.storage.search import Search
from crushpy.storage.task_results import Tasks

_NO_USAGE = Usage()
_SHOWN = 5
"""How many sessions an error lists where an id fits several."""


class Database:
    """One SQLite connection and what we do with it."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._raw = connection
        self._file = file
        self._durable = False
        self._engine = create_engine(
            "sqlite://",
            creator=lambda: connection,
            poolclass=StaticPool,
            pool_reset_on_return=None,  # it would touch the connection from the garbage collector's thread
            isolation_level="AUTOCOMMIT",
        )
        self._connection = self._engine.connect()
        self.execute = self._connection.execute
        self.boundaries = Boundaries(self)
        self.leases = Leases(self)
        self.search = Search(self)
        self.shelf = Shelf(self)
        self.tasks = Tasks(self)

    # --- sessions --------------------------------------------------------------------------------------

    def create_session(self, info: SessionInfo, first: Message | None) -> None:
        with self.transaction(durable=True):
            self.execute(statements.INSERT_SESSION, session_to_row(info))
            if first is not None:
                self.append(info.id, first)

    def session(self, id_or_prefix: str) -> SessionInfo:
        wanted = storable(id_or_prefix.strip().lower())
        hint = "`crushpy sessions list --all` shows the ids there are."
        if not wanted:
            raise UsageError("the session id is empty", hint)
        rows = self.execute(statements.SESSIONS_FROM, {"start": wanted, "many": _SHOWN + 1}).all()
        found = [session_from_row(row) for row in rows if row.id.startswith(wanted)]
        if not found:
            raise UsageError(f"there is no session {wanted!r}", hint)
        if found[0].id == wanted or len(found) == 1:
            return found[0]
        names = ", ".join(f"{info.id} ({clean(info.title)[:40]})" for info in found[:_SHOWN])
        more = ", ..." if len(found) > _SHOWN else ""
        raise UsageError(f"several sessions start with {wanted!r}: {names}{more}", "Give more of the id.")

    def latest(self, cwd: str) -> SessionInfo | None:
        row = self.execute(statements.LATEST, {"folder": storable(cwd)}).first()
        return session_from_row(row) if row else None

    def sessions(self, cwd: str | None, limit: int | None) -> list[SessionInfo]:
        many = -1 if limit is None else limit
        if cwd is None:
            rows = self.execute(statements.TIPS, {"many": many})
        else:
            rows = self.execute(statements.TIPS_OF_FOLDER, {"many": many, "folder": storable(cwd)})
        return [session_from_row(row) for row in rows]

    def lineage(self, session_id: str) -> list[SessionInfo]:
        found: dict[str, SessionInfo] = {}
        wanted: str | None = session_id
        while wanted is not None and wanted not in found:  # a circle of parents cannot hang the walk
            row = self.execute(statements.SESSION, {"session": wanted}).first()
            if row is None:
                break
            found[wanted] = session_from_row(row)
            wanted = None if row.kind == "task" else row.parent_id  # a task starts with a clean sheet
        return list(found.values())[::-1]

    def update_session(
        self,
        session_id: str,
        *,
        title: str | None,
        model: str | None,
        compaction: str | None,
        todos: tuple[Todo, ...] | None,
        grants: tuple[str, ...] | None,
        end_reason: str | None,
    ) -> None:
        changes: dict[str, Any] = {"title": storable(title) if title is not None else None}
        changes |= {"model": model, "compaction": compaction, "end_reason": end_reason}
        changes["todos"] = to_column(todos) if todos is not None else None
        changes["grants"] = to_column(grants) if grants is not None else None
        changes = {name: value for name, value in changes.items() if value is not None}
        if end_reason is not None:
            changes["ended_at"] = time.time() if end_reason else None
        if not changes:
            return
        with self.transaction():
            updated = self.execute(statements.UPDATE_SESSION.values(changes), {"session": session_id})
            self.require(updated.rowcount, session_id)

    def delete_conversation(self, root_id: str) -> int:
        # What is deleted is overwritten with zeros, not only unlinked.
        self._raw.execute("PRAGMA secure_delete = ON")
        try:
            with self.transaction(durable=True):
                self.search.forget(root_id)
                return self.execute(statements.DELETE_CONVERSATION, {"root": root_id}).rowcount
        finally:
            self._raw.execute("PRAGMA secure_delete = OFF")

    # --- messages and tool runs ------------------------------------------------------------------------

    def messages(self, session_id: str) -> list[Message]:
        return [message_from_row(row) for row in self.execute(statements.MESSAGES, {"session": session_id})]

    def add_message(self, session_id: str, message: Message) -> None:
        with self.transaction(durable=message.role == "user"):
            self.append(session_id, message)

    def begin_call(self, session_id: str, message_id: str, call: ToolCall) -> None:
        row = {
            "session_id": session_id,
            "message_id": message_id,
            "call_id": storable(call.id),
            "name": storable(call.name),
            "args": to_column(call.args),
            "started_at": time.time(),
        }
        with self.transaction(durable=True):
            found = self.execute(statements.SESSION_EXISTS, {"session": session_id}).scalar()
            self.require(1 if found else 0, session_id)
            self.leases.beat(session_id)
            self.execute(statements.INSERT_RUN, row)

    def begun_calls(self, session_id: str) -> set[str]:
        return set(self.execute(statements.OPEN_RUNS, {"session": session_id}).scalars())

    # --- the database itself ---------------------------------------------------------------------------

    def check(self) -> list[str]:
        try:
            problems = [str(row[0]) for row in self._raw.execute("PRAGMA integrity_check")]
            strays = self._raw.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.DatabaseError as fault:  # too broken to be checked to the end
            return [str(fault)]
        problems = [] if problems == ["ok"] else problems
        return problems + [f"table {row[0]}: row {row[1]} points at a missing {row[2]}" for row in strays]

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()
        self._raw.close()

    def append(self, session_id: str, message: Message) -> None:
        """Adds a message inside the running transaction."""
        usage = message.usage or _NO_USAGE
        counted = self.execute(
            statements.COUNT_MESSAGE,
            {
                "session": session_id,
                "now": time.time(),
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cache_read": usage.cache_read_tokens,
                "cache_write": usage.cache_write_tokens,
                "price": usage.cost,
            },
        )
        self.require(counted.rowcount, session_id)
        self.leases.beat(session_id)
        self.execute(statements.INSERT_MESSAGE, message_to_row(session_id, message))
        result = message.result
        if result is not None:
            self.execute(
                statements.CLOSE_RUN,
                {
                    "session": session_id,
                    "call": storable(result.call_id),
                    "now": time.time(),
                    "failed": result.is_error,
                    "answer": message.id,
                },
            )

    def require(self, found: int, session_id: str) -> None:
        if not found:
            raise StorageError(
                f"session {session_id} is not in the database {self._file}",
                "It was deleted meanwhile. Start a new session.",
            )

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Generator[None]:
        """Runs its body as one write: all of it or nothing. A `durable` one also survives a power cut."""
        if durable != self._durable:
            self._raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise
