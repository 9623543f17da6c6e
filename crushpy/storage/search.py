"""Full-text search over stored messages, on SQLite's FTS5 with trigrams.

Trigrams find any run of three letters or more, so parts of identifiers and languages without spaces work
alike; shorter words are looked for one message at a time. Messages are indexed when somebody searches: a
running turn never waits for it.
"""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import Row, text

from crushpy.errors import UsageError
from crushpy.messages import Image, Message, Note, Seed, Text, Thinking, ToolCall, ToolResult
from crushpy.sanitize import encodable
from crushpy.storage.boundaries import EVERYTHING, Boundaries
from crushpy.storage.codec import folder_key, to_column
from crushpy.storage.records import SearchHit
from crushpy.storage.row_mapping import message_from_row
from crushpy.storage.sqlite_connection import SqliteConnection

MAX_TEXT = 1_000_000
"""Characters of one message that are indexed."""
MAX_TERMS = 24
MAX_TERM = 200
"""Terms of a query, and characters of one, that are looked for."""
AROUND = 160
"""Characters of a snippet on each side of what was found."""
MOST = 1_000
"""Characters of what was found that a snippet shows."""
_BATCH = 200
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_PLACES = 8
"""Of one word, how many places in a text are weighed for the snippet."""
_REPEATS = "recall"
"""The tool that quotes what is stored: neither its queries nor its answers are found, the original is."""
_NOT_WORDS = re.compile(r"[\x00-\x1f\x7f]+")

_UNINDEXED = text(
    "SELECT * FROM message WHERE number > (SELECT coalesce(max(rowid), 0) FROM message_text) "
    "ORDER BY number LIMIT :many"
)
_INSERT = text("INSERT INTO message_text (rowid, text) VALUES (:number, :text)")
_FORGET = text(
    "DELETE FROM message_text WHERE rowid IN (SELECT number FROM message JOIN session "
    "ON session.id = message.session_id WHERE session.root_id = :root)"
)
_REWRITE = text("INSERT INTO message_text (message_text) VALUES ('optimize')")
_MESSAGE = text("SELECT * FROM message WHERE id = :id")
# Tasks of the sessions that led here, begun before each was left, and all that came out of those tasks.
_TASKS = text(
    """
    WITH RECURSIVE reach (id, last) AS MATERIALIZED (SELECT key, value FROM json_each(:reach)),
    task (id) AS (
        SELECT session.id FROM session JOIN reach ON session.parent_id = reach.id
        WHERE session.kind = 'task'
        AND coalesce((SELECT min(number) FROM message WHERE session_id = session.id), 0) <= reach.last
        UNION SELECT session.id FROM session JOIN task ON session.parent_id = task.id
    )
    SELECT id FROM task
    """
)


class Search:
    def __init__(self, connection: SqliteConnection, boundaries: Boundaries) -> None:
        self._connection = connection
        self._boundaries = boundaries

    def find(self, query: str, within: str | None, cwd: str | None, limit: int) -> list[SearchHit]:
        """All words first; where no message has them all, any of them."""
        terms = terms_of(query)
        if not terms:
            raise UsageError("there is nothing to search for", 'Give a word or a "phrase in quotes".')
        reach = self._reach(within) if within is not None else None
        for every in (True, False) if len(terms) > 1 else (True,):
            rows = self._rows(terms, reach, cwd, limit, every=every)
            if rows:
                return [_hit(row, query, terms) for row in rows]
        return []

    def message(self, message_id: str, within: str) -> Message:
        row = self._connection.execute(_MESSAGE, {"id": encodable(message_id)}).first()
        if row is None or row.number > self._reach(within).get(row.session_id, 0):
            raise UsageError(f"There is no message {message_id!r} in this conversation.")
        return message_from_row(row)

    def forget(self, root_id: str) -> None:
        """Takes a conversation out of the index; inside the transaction that deletes it."""
        gone = self._connection.execute(_FORGET, {"root": root_id}).rowcount
        if gone:
            self._connection.execute(_REWRITE)  # else the letters of what was deleted stay in the file

    def _reach(self, session_id: str) -> dict[str, int]:
        """What a session can look back on: sessions, each with the number of the last message that counts."""
        reach = dict(self._boundaries.reach(session_id))
        tasks = self._connection.execute(_TASKS, {"reach": to_column(reach)}).scalars()
        return reach | {task: EVERYTHING for task in tasks if task not in reach}

    def index_some(self) -> bool:
        """Indexes some of what came since the last search. False where all of it is."""
        with self._connection.transaction():
            rows = self._connection.execute(_UNINDEXED, {"many": _BATCH}).all()
            if rows:
                values = [{"number": row.number, "text": searchable(message_from_row(row))} for row in rows]
                self._connection.execute(_INSERT, values)
            return bool(rows)

    def _rows(
        self,
        terms: Sequence[str],
        reach: dict[str, int] | None,
        cwd: str | None,
        limit: int,
        *,
        every: bool,
    ) -> Sequence[Row[Any]]:
        long = [term for term in terms if len(term) >= 3]
        short = [term for term in terms if len(term) < 3]
        values: dict[str, Any] = {"limit": limit}
        conditions: list[str] = []
        if long:
            values["match"] = (" AND " if every else " OR ").join(_phrase(term) for term in long)
            conditions.append("message_text MATCH :match")
        likes: list[str] = []
        for number, term in enumerate(short):
            # LIKE knows the case of ASCII letters only.
            forms = dict.fromkeys((term, term.lower(), term.upper(), term.title()))
            names = [f"short{number}_{form}" for form in range(len(forms))]
            values |= {name: f"%{_escaped(form)}%" for name, form in zip(names, forms, strict=True)}
            either = " OR ".join(f"message_text.text LIKE :{name} ESCAPE '\\'" for name in names)
            likes.append(f"({either})")
        if likes and (every or not long):
            conditions.append("(" + (" AND " if every else " OR ").join(likes) + ")")
        if cwd is not None:
            values["cwd"] = folder_key(cwd)
            conditions.append("session.cwd = :cwd")
        known = join = ""
        if reach is not None:
            values["reach"] = to_column(reach)
            known = "WITH reach (id, last) AS MATERIALIZED (SELECT key, value FROM json_each(:reach)) "
            join = "JOIN reach ON reach.id = message.session_id AND message.number <= reach.last "
        order = "rank, message.number DESC" if long else "message.number DESC"
        statement = (
            f"{known}SELECT message.id, message.session_id, message.role, message.created_at, "  # noqa: S608
            "session.root_id, session.title, message_text.text FROM message_text "
            "JOIN message ON message.number = message_text.rowid "
            f"JOIN session ON session.id = message.session_id {join}"
            f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :limit"
        )
        return self._connection.execute(text(statement), values).all()


def terms_of(query: str) -> list[str]:
    """The words of a query; what stands in double quotes is one. Operators have no meaning of their own."""
    clean = _NOT_WORDS.sub(" ", encodable(query))
    found = (" ".join((phrase or word).split())[:MAX_TERM] for phrase, word in _TERM.findall(clean))
    return list(dict.fromkeys(term for term in found if term))[:MAX_TERMS]


def searchable(message: Message) -> str:
    """What a message can be found by."""
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case ToolCall(name=name) | ToolResult(name=name) if name == _REPEATS:
                pass
            case Text() | Note() | ToolResult():
                pieces.append(part.text)
            case ToolCall():
                pieces.append(f"{part.name} {part.bad_json or _plain(part.args)}")
            case Seed():
                pieces.append(part.summary)
            case Image():
                pieces.append(part.name)
            case Thinking():
                pass
    return "\n".join(pieces)[:MAX_TEXT].replace("\0", " ")


def _plain(value: Any) -> str:
    """Arguments as text without JSON's escapes: what a person would type to find them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{key} {_plain(item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return " ".join(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return msgspec.json.encode(value).decode()


def _phrase(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _escaped(term: str) -> str:
    return term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _hit(row: Row[Any], query: str, terms: Sequence[str]) -> SearchHit:
    body: str = row.text
    start, end = _window(body, query, terms)
    snippet = body[start:end].strip()
    snippet = ("…" if start else "") + snippet + ("…" if end < len(body) else "")
    return SearchHit(row.id, row.session_id, row.root_id, row.title, row.role, row.created_at, snippet)


def _window(body: str, query: str, terms: Sequence[str]) -> tuple[int, int]:
    """The part of a text to show: round the query as it was typed, else where most of its words stand."""
    lower = body.lower() if len(body.lower()) == len(body) else body  # a few letters change their length
    words = [term.lower() for term in terms]
    typed = query.replace('"', " ").lower().split()
    whole = re.search(r"\s+".join(map(re.escape, typed)), lower)
    if whole:
        return max(0, whole.start() - AROUND), min(whole.end(), whole.start() + MOST) + AROUND
    places = [
        (found.start(), number)
        for number, word in enumerate(words)
        for found in islice(re.finditer(re.escape(word), lower), _PLACES)
    ]
    places.sort()

    def worth(start: int) -> int:
        return len({number for at, number in places if start <= at < start + AROUND})

    best = max((at for at, _ in places), key=lambda at: (worth(at), -at), default=0)
    return max(0, best - AROUND), best + AROUND
