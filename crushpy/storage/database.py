"""What both databases provide: statements, transactions, leases and a full-text index.

`SqliteDatabase` and `PostgresDatabase` implement it; nothing else knows which one is open. Lives on the
storage thread.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from crushpy.core.messages import Data
from crushpy.storage.records import SessionBusy, StorageError
from crushpy.util.processes import started_at

R = TypeVar("R")
_PARAMETER = re.compile(r"(?<!:):(\w+)")


class Statement(Generic[R]):
    """SQL for SQLite with `:name` parameters, for PostgreSQL `%(name)s`. `row` is None for one column."""

    __slots__ = ("postgres", "row", "sqlite")

    def __init__(self, sqlite: str, postgres: str, row: type[R] | None) -> None:
        self.sqlite = sqlite
        self.postgres = postgres
        self.row = row


@cache
def handwritten(sql: str) -> Statement[Any]:
    """A statement with `:name` parameters that is not rendered from `queries/`, and has no row type."""
    return Statement(sql, _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")), None)


class DriverCursor(Protocol):
    """What the libraries of both databases return."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None: ...
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows(Generic[R]):
    """The rows of one execution: iterate over them, or use one of these methods, once."""

    def __init__(self, cursor: DriverCursor, row: type[R] | None) -> None:
        self._cursor = cursor
        self._row: Any = row

    @property
    def rowcount(self) -> int:
        """How many rows a write changed."""
        return self._cursor.rowcount

    def __iter__(self) -> Iterator[R]:
        row = self._row
        return (row(*values) for values in self._cursor)

    def all(self) -> list[R]:
        row = self._row
        return [row(*values) for values in self._cursor.fetchall()]

    def first(self) -> R | None:
        values = self._cursor.fetchone()
        self._cursor.close()  # a statement that is not read to its end holds a lock
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
        self._cursor.close()
        return values[0] if values is not None else None

    def scalars(self) -> list[Any]:
        """The first value of each row."""
        return [values[0] for values in self._cursor.fetchall()]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by the names of its columns."""
        names = [column[0] for column in self._cursor.description or ()]
        return (dict(zip(names, values, strict=True)) for values in self._cursor)


T = TypeVar("T")
NEVER = float("-inf")
"""The time of a request that does not wait at all: it can be repeated later."""
GAVE_UP_SECONDS = 10.0
"""After a wait that failed, the time in which no other job waits: a turn that ends has more to store."""
LETTERS = re.compile(r"[^\W_]")
"""A term needs one of these to be found by its words."""


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
    finds_whole_words_faster: bool
    """Whether a search looks for whole words first, and for parts of words only if those are too few."""

    @abstractmethod
    def add(self, texts: Sequence[IndexedText]) -> None:
        """Inside a transaction. None of them is in the index."""

    @abstractmethod
    def remove(self, texts: Sequence[IndexedText]) -> None:
        """Inside the transaction that deletes the messages; `texts` are what was added."""

    @abstractmethod
    def merge_some(self, *, begin: bool) -> bool:
        """Does a part of the work that makes removed words leave the disk. False if none is left."""

    @abstractmethod
    def find_term(self, name: str, term: str, values: dict[str, Any], *, whole: bool) -> str | None:
        """A query for the numbers of all messages that contain `term`, and of few others.

        Its parameters have names that begin with `name`. None if the index cannot tell: each message is
        examined then. One or two ASCII letters or digits are only found at the beginning of words. With
        `whole`, if that is faster, only messages that contain its words as they are.
        """

    @abstractmethod
    def rank(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        """A join for `message`, and the rank of a message with it: less is better, NULL if it has none.

        `find_term` was called for each of them just before.
        """


class Database(ABC):
    place: str
    """How errors name the database; without passwords."""
    leases: "Leases"
    full_text: FullTextIndex

    @abstractmethod
    def execute(self, statement: Statement[R], **values: Any) -> Rows[R]: ...

    @abstractmethod
    def execute_many(self, statement: Statement[Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Executes a statement once with each set of values."""

    @abstractmethod
    def transaction(self, *, durable: bool = False, session: str = "") -> AbstractContextManager[None]:
        """Runs its body as one write: all of it or nothing. A `durable` one also survives a power failure.

        No other process writes to the conversation of `session` meanwhile, and its lease must still be ours.
        """

    @abstractmethod
    def run(self, job: Callable[[], T], asked: float) -> T:
        """Runs a job, again after a lost connection. It waits a minute at most since it was `asked` for."""

    @abstractmethod
    def no_wait(self) -> AbstractContextManager[None]:
        """Its body writes at once, or raises `CannotWriteNow`."""

    @abstractmethod
    def lock_sequence(self, table: str) -> None:
        """Inside a transaction: until its end no other process adds rows, whose numbers order them."""

    @abstractmethod
    def reset_sequence(self, table: str) -> None:
        """After rows were stored with their numbers: the next row gets a larger one."""

    @abstractmethod
    def secure_delete(self) -> AbstractContextManager[None]:
        """Rows that its body deletes are overwritten, if the database can do that."""

    def verify(self) -> None:  # noqa: B027  # a server needs none
        """Raises `DatabaseLost` if a file was deleted, replaced or overwritten since it was opened."""

    @abstractmethod
    def check(self) -> list[str]:
        """The problems of the database, one line each."""

    @abstractmethod
    def close(self) -> None: ...


# --- leases

_FIND_ROOT = handwritten("SELECT root_id FROM session WHERE id = :session")
_MOVE = handwritten("UPDATE lease SET session_id = :child WHERE session_id = :session AND token = :token")
_DELETE = handwritten("DELETE FROM lease WHERE token = :token")
_SESSION_EXISTS = handwritten("SELECT 1 FROM session WHERE id = :session AND kind <> 'deleted'")


class Leases(ABC):
    """The leases of this process: a row names the one writer of a session, with a fencing token.

    `now` and `new_token` are SQL expressions.
    """

    def __init__(self, db: Database, place: str, now: str, new_token: str) -> None:
        import platform  # not needed before a database is opened

        me = os.getpid()
        self._db = db
        self._me = {"process": me, "started": started_at(me), "host": platform.node(), "place": place}
        self._held: dict[str, tuple[int, str]] = {}
        """Sessions this store acquired: the token, and the conversation."""
        columns = "session_id, process, started, host, place"
        others = ", ".join(f"{name} = excluded.{name}" for name in (*self._me, "heartbeat", "token"))
        self._find = handwritten(
            f"SELECT {columns}, token, CAST({now} - heartbeat AS double precision) AS silent "  # noqa: S608
            "FROM lease WHERE session_id = :session"
        )
        self._acquire = handwritten(
            f"INSERT INTO lease ({columns}, heartbeat, token) VALUES (:session, :process, :started, :host, "  # noqa: S608
            f":place, {now}, {new_token}) ON CONFLICT (session_id) DO UPDATE SET {others} RETURNING token"
        )
        self._renew = handwritten(f"UPDATE lease SET heartbeat = {now} WHERE token = :token")  # noqa: S608

    def acquire(self, session_id: str) -> bool:
        """Makes this process the only writer; False if it was already. `SessionBusy` if another one is."""
        self._held.pop(session_id, None)
        with self._db.transaction(session=session_id):
            token, mine = self._take(session_id)
            root = self._db.execute(_FIND_ROOT, session=session_id).scalar() or session_id
        self._held[session_id] = (token, root)
        return not mine

    def _take(self, session_id: str) -> tuple[int, bool]:
        """The token of the lease, and whether this process had it already."""
        row = self._find_row(session_id)
        if row is not None and all(row[name] == value for name, value in self._me.items()):
            return row["token"], True
        if row is not None and self._is_alive(row):
            raise _session_busy(session_id, row["process"], "" if self._is_here(row) else row["host"])
        return self._db.execute(self._acquire, session=session_id, **self._me).scalar(), False

    def _find_row(self, session_id: str) -> dict[str, Any] | None:
        return next(self._db.execute(self._find, session=session_id).dicts(), None)

    def _is_here(self, row: Mapping[str, Any]) -> bool:
        """Whether a process id of the row is valid here."""
        return (row["host"], row["place"]) == (self._me["host"], self._me["place"])

    def confirm(self, place: str) -> None:
        """Inside a transaction that writes to a session or conversation: this is still its writer."""
        # Boundaries pass a token on: however many sessions there are, each token is renewed once.
        tokens = {token: session for session, (token, root) in self._held.items() if place in (session, root)}
        for token, session in tokens.items():
            if not self._db.execute(self._renew, token=token).rowcount:
                if self._db.execute(_SESSION_EXISTS, session=session).scalar() is None:
                    raise StorageError(
                        f"session {session} is not in the database {self._db.place}",
                        "It was deleted meanwhile. Start a new session.",
                    )
                self._handle_loss(session)

    @property
    def tokens(self) -> set[int]:
        """Of all leases that this store holds."""
        return {token for token, _ in self._held.values()}

    def renew_all(self) -> float | None:
        """On a timer: this process is alive. Seconds until the next time; None if no heartbeat is needed."""
        return None

    def move(self, parent_id: str, child_id: str) -> None:
        """Inside the transaction of a boundary: the writer of the parent continues in the child."""
        held = self._held.get(parent_id)
        if held is not None:
            self._db.execute(_MOVE, session=parent_id, token=held[0], child=child_id)
            self._held[child_id] = held  # the token counts, even if this is not committed

    def release(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None:
            self._db.execute(_DELETE, token=held[0])
            self._held = {session: one for session, one in self._held.items() if one != held}

    def release_all(self) -> None:
        """Releases what this store acquired; another store of this process keeps its own."""
        for token in self.tokens:
            self._db.execute(_DELETE, token=token)
        self._held.clear()

    @abstractmethod
    def _is_alive(self, row: Mapping[str, Any]) -> bool: ...

    @abstractmethod
    def _handle_loss(self, session: str) -> None:
        """The row of a lease of ours is gone, or belongs to another process."""


def _session_busy(session_id: str, process: int, host: str) -> SessionBusy:
    """The error for the second process; `host` is empty if the first one is on this machine."""
    where = f" on {host}" if host else ""
    busy = SessionBusy(
        f"session {session_id} is in use by another crushpy (process {process}{where})",
        "Continue there, end it, or work on a branch of your own with --fork. "
        "`crushpy sessions show` reads it without writing.",
    )
    busy.session_id = session_id
    return busy
