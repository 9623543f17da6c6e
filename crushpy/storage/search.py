"""Full-text search over stored messages, on SQLite's FTS5 with trigrams.

Trigrams find any run of three letters or more, so parts of identifiers and languages without spaces work
alike; shorter words are looked for one message at a time. Messages are indexed when somebody searches: a
running turn never waits for it.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Row, text

from crushpy.errors import UsageError
from crushpy.messages import Image, Message, Note, Seed, Text, Thinking, ToolCall, ToolResult
from crushpy.storage.records import Hit
from crushpy.storage.rows import message_from_row

if TYPE_CHECKING:
    from crushpy.storage.database import Database

MAX_TEXT = 200_000
"""Characters of one message that are indexed."""
AROUND = 160
"""Characters of a snippet on each side of what was found."""
_BATCH = 200
_TERM = re.compile(r'"([^"]+)"|(\S+)')

_UNINDEXED = text(
    "SELECT * FROM message WHERE number > (SELECT coalesce(max(rowid), 0) FROM message_text) "
    "ORDER BY number LIMIT :many"
)
_INSERT = text("INSERT INTO message_text (rowid, text) VALUES (:number, :text)")
_FORGET = text(
    "DELETE FROM message_text WHERE rowid IN (SELECT number FROM message JOIN session "
    "ON session.id = message.session_id WHERE session.root_id = :root)"
)
_MESSAGE = text("SELECT * FROM message WHERE id = :id")
_FAMILY = """
    WITH RECURSIVE ancestor (id, parent_id) AS (
        SELECT id, parent_id FROM session WHERE id = :within
        UNION SELECT session.id, session.parent_id FROM session
        JOIN ancestor ON session.id = ancestor.parent_id
    )
    SELECT id FROM ancestor
    UNION SELECT session.id FROM session JOIN ancestor ON session.parent_id = ancestor.id
    WHERE session.kind = 'task'
"""


class Search:
    def __init__(self, database: "Database") -> None:
        self._database = database

    def find(self, query: str, within: str | None, cwd: str | None, limit: int) -> list[Hit]:
        """All words first; where no message has them all, any of them."""
        terms = terms_of(query)
        if not terms:
            raise UsageError("there is nothing to search for", 'Give a word or a "phrase in quotes".')
        self._index()
        for every in (True, False) if len(terms) > 1 else (True,):
            rows = self._rows(terms, within, cwd, limit, every=every)
            if rows:
                return [_hit(row, terms) for row in rows]
        return []

    def message(self, message_id: str, within: str) -> Message:
        row = self._database.execute(_MESSAGE, {"id": message_id}).first()
        family = self._database.execute(text(_FAMILY), {"within": within}).scalars().all()
        if row is None or row.session_id not in family:
            raise UsageError(f"There is no message {message_id!r} in this conversation.")
        return message_from_row(row)

    def forget(self, root_id: str) -> None:
        """Takes a conversation out of the index; inside the transaction that deletes it."""
        self._database.execute(_FORGET, {"root": root_id})

    def _index(self) -> None:
        """Indexes what came since the last search."""
        while True:
            with self._database.transaction():
                rows = self._database.execute(_UNINDEXED, {"many": _BATCH}).all()
                if not rows:
                    return
                values = [{"number": row.number, "text": searchable(message_from_row(row))} for row in rows]
                self._database.execute(_INSERT, values)

    def _rows(
        self, terms: Sequence[str], within: str | None, cwd: str | None, limit: int, *, every: bool
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
            values[f"short{number}"] = f"%{_escaped(term)}%"
            likes.append(f"message_text.text LIKE :short{number} ESCAPE '\\'")
        if likes and (every or not long):
            conditions.append("(" + (" AND " if every else " OR ").join(likes) + ")")
        if within is not None:
            values["within"] = within
            conditions.append(f"message.session_id IN ({_FAMILY})")
        if cwd is not None:
            values["cwd"] = cwd
            conditions.append("session.cwd = :cwd")
        order = "rank, message.number DESC" if long else "message.number DESC"
        statement = (
            "SELECT message.id, message.session_id, message.role, message.created_at, session.root_id, "  # noqa: S608
            "session.title, message_text.text FROM message_text "
            "JOIN message ON message.number = message_text.rowid "
            "JOIN session ON session.id = message.session_id "
            f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :limit"
        )
        return self._database.execute(text(statement), values).all()


def terms_of(query: str) -> list[str]:
    """The words of a query; what stands in double quotes is one. Operators have no meaning of their own."""
    found = (phrase or word for phrase, word in _TERM.findall(query))
    return [term.replace('"', "").strip() for term in found if term.replace('"', "").strip()]


def searchable(message: Message) -> str:
    """What a message can be found by."""
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case Text() | Note() | ToolResult():
                pieces.append(part.text)
            case ToolCall():
                pieces.append(f"{part.name} {part.bad_json or _plain(part.args)}")
            case Seed():
                pieces.append(part.summary)
            case Thinking() | Image():
                pass
    return "\n".join(pieces)[:MAX_TEXT]


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


def _hit(row: Row[Any], terms: Sequence[str]) -> Hit:
    body: str = row.text
    lower = body.lower()
    at = min((found for term in terms if (found := lower.find(term.lower())) >= 0), default=0)
    start, end = max(0, at - AROUND), at + AROUND
    snippet = body[start:end].strip()
    snippet = ("…" if start else "") + snippet + ("…" if end < len(body) else "")
    return Hit(row.id, row.session_id, row.root_id, row.title, row.role, row.created_at, snippet)
