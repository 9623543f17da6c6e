"""What both databases provide: statements, transactions, leases and a full-text index.

`SqliteDatabase` and `PostgresDatabase` implement it; nothing else knows which one is open. Lives on the
storage thread.
"""

import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from crushpy.core.messages import Data
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import LeaseRow
from crushpy.storage.location import Location
from crushpy.storage.records import CannotWriteNow, SessionBusy, StorageError
from crushpy.storage.statement import R, Statement
from crushpy.util.data_table import read_table
from crushpy.util.processes import started_at, still_runs

if TYPE_CHECKING:
    import sqlite3

    import psycopg


class Rows(Generic[R]):
    """The rows of one execution: iterate over them, or use one of these methods, once."""

    def __init__(self, cursor: "sqlite3.Cursor | psycopg.Cursor[Any]", row: type[R] | None) -> None:
        self._cursor = cursor
        self.close = cursor.close
        """Needed if not all rows were read: an open statement holds a lock."""
        self._row: Any = row

    @property
    def rowcount(self) -> int:
        """How many rows a write changed."""
        return self._cursor.rowcount

    def __iter__(self) -> Iterator[R]:
        row = self._row
        return (row(*values) for values in self._cursor)

    def all(self) -> list[R]:
        return list(self)

    def first(self) -> R | None:
        values = self._cursor.fetchone()
        self.close()
        return self._row(*values) if values is not None else None

    def one(self) -> R:
        """The row that must exist."""
        row = self.first()
        if row is None:
            raise LookupError("no row was found")
        return row

    def scalar(self) -> Any:
        """The first value of the first row; None if there is no row."""
        values = self._cursor.fetchone()
        self.close()
        return values[0] if values is not None else None

    def scalars(self) -> list[Any]:
        """The first value of each row."""
        return [values[0] for values in self._cursor.fetchall()]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by the names of its columns."""
        names = [column[0] for column in self._cursor.description or ()]
        return (dict(zip(names, values, strict=True)) for values in self._cursor)


T = TypeVar("T")
GAVE_UP_SECONDS = 10.0
"""After a wait that failed, the time in which no other job waits: a turn that ends has more to store, and
jobs may be queued."""
LETTERS = re.compile(r"[^\W_]")
"""A term needs one of these to be found by its words."""


WAIT_TIMEOUT_S = 60.0
"""How long a job waits for other processes, or for a server that cannot be reached."""
NO_WAIT_TIMEOUT_S = 0.3
"""How long work waits that can be done later."""
NOTICE_DELAY_S = 2.0
"""How long a wait takes before the user is told."""
FIRST_PAUSE_S = 0.01


class Wait:
    """Repeats what a database refuses while it is busy or cannot be reached: at random moments, so that no
    process starves. The user is told about a long wait, and about its end."""

    def __init__(
        self,
        location: Location,
        notices: tuple[str, str],
        may_pass: Callable[[Exception], bool],
        max_pause_s: float,
    ) -> None:
        """`notices`: why it waits, and that it continues. `may_pass`: whether waiting may help."""
        self._location, self._notices, self._may_pass = location, notices, may_pass
        self._max_pause_s = max_pause_s
        self._gave_up_at = float("-inf")

    def __call__(self, action: Callable[[], T], *, waits: bool = True) -> T:
        """The result of `action`, which changes nothing if it fails. Waits a minute at most."""
        began, told, pause = time.monotonic(), False, FIRST_PAUSE_S
        hopeless = not waits or began - self._gave_up_at < GAVE_UP_SECONDS
        deadline = began + (NO_WAIT_TIMEOUT_S if hopeless else WAIT_TIMEOUT_S)
        while True:
            try:
                done = action()
            except Exception as error:
                now = time.monotonic()
                if not self._may_pass(error):
                    raise
                if now >= deadline:
                    self._gave_up_at = now if waits else self._gave_up_at
                    raise
                if now - began >= NOTICE_DELAY_S and not told:
                    told = True
                    self._location.notify(f"{self._notices[0]} Waiting for it, up to a minute.")
            else:
                if told:
                    self._location.notify(self._notices[1])
                return done
            time.sleep(random.uniform(0, pause))  # noqa: S311  # not for secrets
            pause = min(2 * pause, self._max_pause_s)


class IndexedText(Data, frozen=True):
    """A message as the index contains it."""

    number: int
    words: str
    """Everything it can be found by."""
    parts: str
    """Its distinct words, as far as they can be found by a part."""


class FullTextIndex(ABC):
    """Which message contains which words."""

    like_operator: str
    """The operator that ignores the case of ASCII letters."""
    reach_query: str
    """Sessions and message numbers in the JSON object `:reach`, as rows."""

    def __init__(self, db: "Database") -> None:
        self._db = db

    @abstractmethod
    def add(self, texts: Sequence[IndexedText]) -> None:
        """Inside a transaction. None of them is in the index."""

    @abstractmethod
    def remove(self, texts: Sequence[IndexedText]) -> None:
        """Inside the transaction that deletes the messages; `texts` are what was added."""

    def merge_some(self, *, begin: bool) -> bool:
        """Does a part of the work that makes removed words leave the disk. False if none is left."""
        return False

    @abstractmethod
    def find_term(self, name: str, term: str, values: dict[str, Any]) -> str | None:
        """A query for the numbers of all messages that contain `term`, and of few others.

        Its parameters have names that begin with `name`. None if the index cannot tell: each message is
        examined then. One or two ASCII letters or digits are only found at the beginning of words.
        """

    @abstractmethod
    def rank(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        """A join for `message`, and the rank of a message with it: less is better, NULL if it has none.

        `find_term` was called for each of them just before.
        """


class Database(ABC):
    place: str
    """How errors name the database; without passwords."""
    waits = True
    """Whether a write waits for other processes."""
    leases: "Leases"
    full_text: FullTextIndex

    @abstractmethod
    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]:
        """Lone surrogates in a text, from file names or replies that are not Unicode, are replaced."""

    @abstractmethod
    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Executes a statement once with each set of values."""

    @abstractmethod
    def transaction(self, *, durable: bool = False, session: str = "") -> AbstractContextManager[None]:
        """Runs its body as one write: all of it or nothing. A `durable` one also survives a power failure.

        No other process writes to the conversation of `session` meanwhile, and its lease must still be ours.
        """

    def prepare(self) -> None:  # noqa: B027  # a file is opened when the object is created
        """Connects, and creates or upgrades the tables if necessary."""

    @abstractmethod
    def run(self, job: Callable[[], T], *, patient: bool) -> T:
        """Runs a job, again after a lost connection, for which it waits a minute at most, if `patient`."""

    @contextmanager
    def no_wait(self) -> Generator[None]:
        """Its body writes at once, or raises `CannotWriteNow`."""
        before, self.waits = self.waits, False
        try:
            yield
        except Exception as error:
            if not self._may_be_written_later(error):
                raise
            raise CannotWriteNow(f"cannot write to the database {self.place} now: {error}") from error
        finally:
            self.waits = before

    @abstractmethod
    def _may_be_written_later(self, error: Exception) -> bool:
        """Whether others hold a lock, the database is read-only, or its disk is full."""

    def lock_sequence(self, table: str) -> None:  # noqa: B027  # a transaction may lock everything
        """Inside a transaction: until its end no other process adds rows, whose numbers order them."""

    def reset_sequence(self, table: str) -> None:  # noqa: B027  # it may be one more than the largest
        """After rows were stored with their numbers: the next row gets a larger one."""

    def secure_delete(self) -> AbstractContextManager[None]:
        """Rows that its body deletes are overwritten, if the database can do that."""
        return nullcontext()

    def verify(self) -> None:  # noqa: B027  # a server needs none
        """Raises `DatabaseLost` if a file was deleted, replaced or overwritten since it was opened."""

    def check(self) -> list[str]:
        """The problems of the database, one line each; a server checks itself."""
        return []

    @abstractmethod
    def close(self) -> None: ...


OTHER_HINT = "Run `crushpy doctor` to check the database."
_HINTS = read_table(__file__, "error_hints", dict[str, dict[str, str]])
"""What to do about an error of SQLite or PostgreSQL, by the beginning of its code."""


def find_hint(kind: str, code: str) -> str:
    return next((hint for start, hint in _HINTS[kind].items() if code.startswith(start)), OTHER_HINT)


def session_missing(db: Database, session_id: str) -> StorageError:
    return StorageError(
        f"session {session_id} is not in the database {db.place}",
        "It was deleted meanwhile. Start a new session.",
    )


# --- leases

HEARTBEAT_S = 10.0
LEASE_TIMEOUT_S = 45.0
"""After this time without a heartbeat a process counts as dead; `CRUSHPY_LEASE_SECONDS` overrides it."""
FILE_LEASE_TIMEOUT_S = 15 * 60.0
"""After this time without a write a process on another machine that uses the same file counts as dead."""


class Leases:
    """The leases of this process: a row names the one process that writes to a session, with a fencing token.

    On a server a heartbeat, by the server's clock, tells whether that process is alive. A process that was
    suspended for long, and whose lease another one acquired meanwhile, finds another token, or no row, at its
    next write to any session of that conversation: it is refused, even if the other one is gone. Processes
    that use a file are usually on one machine and see whether another one runs: they need no heartbeats.
    """

    def __init__(self, db: Database, *, on_server: bool) -> None:
        import platform  # not needed before a database is opened

        me = os.getpid()
        self._db = db
        self._on_server = on_server
        scope = ""
        """Of a process id: this boot of this machine, and this container on it."""
        if on_server:
            scope = platform.node()
            with suppress(OSError):
                scope += f" {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
            with suppress(OSError):
                scope += f" {Path('/proc/self/ns/pid').readlink()}"
        self._me = {"process": me, "started": started_at(me), "host": platform.node(), "place": scope}
        self._held: dict[str, tuple[int, str]] = {}
        """Sessions this store acquired: the token, and the conversation."""

    def acquire(self, session_id: str) -> bool:
        """Makes this process the only writer; False if it was already. `SessionBusy` if another one is."""
        self._held.pop(session_id, None)
        with self._db.transaction(session=session_id):
            token, mine = self._take(session_id)
            root = self._db.execute(sql.FIND_CONVERSATION, session=session_id).scalar() or session_id
        self._held[session_id] = (token, root)
        return not mine

    def _take(self, session_id: str) -> tuple[int, bool]:
        """The token of the lease, and whether this process had it already."""
        row = self._db.execute(sql.FIND_LEASE, session=session_id).first()
        if row is not None and all(getattr(row, name) == value for name, value in self._me.items()):
            return row.token, True
        if row is not None and self._is_alive(row):
            where = "" if self._is_here(row) else f" on {row.host}"
            raise SessionBusy(session_id, f"process {row.process}{where}")
        return self._db.execute(sql.SAVE_LEASE, session_id=session_id, **self._me).scalar(), False

    def _is_here(self, row: LeaseRow) -> bool:
        """Whether a process id of the row is valid here."""
        return (row.host, row.place) == (self._me["host"], self._me["place"])

    def _is_alive(self, row: LeaseRow) -> bool:
        if self._is_here(row):
            runs = still_runs(row.process, row.started)
            return runs and (not self._on_server or row.silent < lease_timeout())
        return row.silent < (lease_timeout() if self._on_server else FILE_LEASE_TIMEOUT_S)

    def confirm(self, place: str) -> None:
        """Inside a transaction that writes to a session or conversation: this is still its writer."""
        # Boundaries pass a token on: however many sessions there are, each token is renewed once.
        tokens = {token: session for session, (token, root) in self._held.items() if place in (session, root)}
        for token, session in tokens.items():
            if not self._db.execute(sql.RENEW_LEASE, token=token).rowcount:
                if self._db.execute(sql.SESSION_EXISTS, session=session).scalar() is None:
                    raise session_missing(self._db, session)
                self._handle_loss(session)

    def _handle_loss(self, session: str) -> None:
        """The row of a lease of ours is gone, or belongs to another process."""
        if not self._on_server:  # another store of this process may have released it
            self._held[session] = (self._take(session)[0], self._held[session][1])
            return
        row = self._db.execute(sql.FIND_LEASE, session=session).first()
        by = f" (process {row.process} on {row.host})" if row is not None else ""
        raise StorageError(
            f"session {session} was taken over by another crushpy{by} while this one was suspended",
            "Nothing was written from here since. Open the session again to see its messages.",
        )

    @property
    def tokens(self) -> set[int]:
        """Of all leases that this store holds."""
        return {token for token, _ in self._held.values()}

    def renew_all(self) -> float | None:
        """On a timer: this process is alive. Seconds until the next time; None if no heartbeat is needed."""
        if not self._on_server or not self._held:
            return None
        for token in self.tokens:
            self._db.execute(sql.RENEW_LEASE, token=token)
        return min(HEARTBEAT_S, lease_timeout() / 4)

    def move(self, parent_id: str, child_id: str) -> None:
        """Inside the transaction of a boundary: the writer of the parent continues in the child."""
        held = self._held.get(parent_id)
        if held is not None:
            self._db.execute(sql.MOVE_LEASE, session=parent_id, token=held[0], child=child_id)
            self._held[child_id] = held  # the token counts, even if this is not committed

    def release(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None:
            self._db.execute(sql.DELETE_LEASE, token=held[0])
            self._held = {session: lock for session, lock in self._held.items() if lock != held}

    def release_all(self) -> None:
        """Releases what this store acquired; another store of this process keeps its own."""
        for token in self.tokens:
            self._db.execute(sql.DELETE_LEASE, token=token)
        self._held.clear()


def lease_timeout() -> float:
    try:
        return max(0.0, float(os.environ["CRUSHPY_LEASE_SECONDS"])) or LEASE_TIMEOUT_S
    except (KeyError, ValueError):
        return LEASE_TIMEOUT_S
