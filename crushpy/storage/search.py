"""Full-text search over stored messages: candidates from the index, each looked at before it counts.

Lives on the storage thread.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message
from crushpy.security.sanitize import encodable
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.codec import folder_key, to_column
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED
from crushpy.storage.full_text import LETTERS, FullText
from crushpy.storage.records import EVERYTHING, SearchHit
from crushpy.storage.row_mapping import message_from_row
from crushpy.storage.rows import Row
from crushpy.storage.search_index import searchable

MAX_TERMS = 24
MAX_TERM = 200
"""Terms of a query, and characters of one, that are looked for."""
AROUND = 160
"""Characters of a snippet on each side of what was found."""
MOST = 1_000
"""Characters of what was found that a snippet shows."""
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_PLACES = 8
"""Of one word, how many places in a text are weighed for the snippet."""
_NOT_WORDS = re.compile(r"[\x00-\x1f\x7f]+")

_FIRST_PAGE, _LARGEST_PAGE = 32, 512
"""Candidates whose texts are read at once."""

_MESSAGE = "SELECT * FROM message WHERE id = :id"
_PAGE = """
    SELECT message.*, session.root_id, session.title FROM message
    JOIN session ON session.id = message.session_id
    WHERE message.number IN ({}) AND session.kind != 'deleted'
"""
# Tasks of the sessions that led here, begun before each was left, and all that came out of those tasks.
_TASKS = """
    WITH RECURSIVE reach (id, last) AS MATERIALIZED ({}),
    task (id) AS (
        SELECT session.id FROM session JOIN reach ON session.parent_id = reach.id
        WHERE session.kind = 'task'
        AND coalesce((SELECT min(number) FROM message WHERE session_id = session.id), 0) <= reach.last
        UNION SELECT session.id FROM session JOIN task ON session.parent_id = task.id
    )
    SELECT id FROM task
"""


_WAITS = (
    "SELECT 1 FROM message JOIN index_queue ON index_queue.number = message.number "
    "WHERE message.session_id IN ({}) LIMIT 1"
)
_ALL_WAITING = "SELECT number FROM index_queue"


class _Wanted(Data, frozen=True):
    """What is looked for, and where."""

    terms: Sequence[str]
    reach: dict[str, int] | None
    cwd: str | None
    every: bool = True
    whole: bool = False
    """Only where the words stand as they are."""


class Search:
    def __init__(self, connection: Connection, boundaries: Boundaries, full_text: FullText) -> None:
        self._connection = connection
        self._full_text = full_text
        self._reach = connection.dialect.pairs_of.format(":reach")
        self._tasks = _TASKS.format(self._reach)
        self._waits = _WAITS.format(connection.dialect.items_of.format(":sessions"))
        self._page = _PAGE.format(connection.dialect.numbers_of.format(":numbers"))
        self._boundaries = boundaries
        self._execute = connection.execute

    def find(self, query: str, within: str | None, cwd: str | None, limit: int) -> list[SearchHit]:
        """All words first; where no message has them all, any of them. `within` a session also those messages
        that the index does not have yet."""
        terms = terms_of(query)
        if not terms:
            raise UsageError("there is nothing to search for", 'Give a word or a "phrase in quotes".')
        reach = self.reach(within) if within is not None else None
        if self._full_text.whole_words_first and all(LETTERS.search(term) for term in terms):
            hits = list(islice(self._hits(query, _Wanted(terms, reach, cwd, whole=True)), limit))
            if len(hits) == limit:  # parts of words come after them
                return hits
        for every in (True, False) if len(terms) > 1 else (True,):
            found = islice(self._hits(query, _Wanted(terms, reach, cwd, every=every)), limit)
            if hits := list(found):
                return hits
        return []

    def message(self, message_id: str, within: str) -> Message:
        row = self._connection.execute(_MESSAGE, {"id": encodable(message_id)}).first()
        if row is None or row.number > self.reach(within).get(row.session_id, 0):
            raise UsageError(f"There is no message {message_id!r} in this conversation.")
        return message_from_row(row)

    def reach(self, session_id: str) -> dict[str, int]:
        """What a session can look back on: sessions, each with the number of the last message that counts."""
        reach = dict(self._boundaries.reach(session_id))
        tasks = self._connection.execute(self._tasks, {"reach": to_column(reach)}).scalars()
        return reach | {task: EVERYTHING for task in tasks if task not in reach}

    def _hits(self, query: str, wanted: "_Wanted") -> Iterator[SearchHit]:
        """Those candidates of the index in which the words really stand."""
        terms = wanted.terms
        needed = all if wanted.every else any
        for row in self._candidates(wanted):
            body = searchable(message_from_row(row))
            lower = body.lower()
            if needed(term.lower() in lower for term in terms):
                yield _hit(row, body, query, terms)

    def _candidates(self, wanted: "_Wanted") -> Iterator[Row]:
        """Best first. The texts are read a page at a time: mostly the first ones are enough."""
        numbers = self._numbers(wanted)
        size = _FIRST_PAGE
        while numbers:
            page, numbers = numbers[:size], numbers[size:]
            rows = {row.number: row for row in self._execute(self._page, {"numbers": to_column(page)})}
            yield from (rows[number] for number in page if number in rows)
            size = min(2 * size, _LARGEST_PAGE)

    def _numbers(self, wanted: "_Wanted") -> list[int]:
        terms, reach, cwd = wanted.terms, wanted.reach, wanted.cwd
        values: dict[str, Any] = {"deleted": DELETED}
        sessions = {"sessions": to_column(list(reach or ()))}
        unindexed = reach is not None and self._connection.execute(self._waits, sessions).first() is not None
        each = [
            self._where(number, term, values, unindexed=unindexed, whole=wanted.whole)
            for number, term in enumerate(terms)
        ]
        conditions = [
            "(" + (" AND " if wanted.every else " OR ").join(each) + ")",
            "session.kind != :deleted",
        ]
        if cwd is not None:
            values["cwd"] = folder_key(cwd)
            conditions.append("session.cwd = :cwd")
        known = join = ""
        if reach is not None:
            values["reach"] = to_column(reach)
            known = f"WITH reach (id, last) AS MATERIALIZED ({self._reach}) "
            join = "JOIN reach ON reach.id = message.session_id AND message.number <= reach.last "
        ranked, order = "", "message.number DESC"
        if spelled := [term for term in terms if LETTERS.search(term)]:
            ranked, rank = self._full_text.ranking(spelled, values)
            order = f"coalesce({rank}, 0), message.number DESC"
        statement = (
            f"{known}SELECT message.number FROM message "  # noqa: S608
            f"JOIN session ON session.id = message.session_id {join}{ranked} "
            f"WHERE {' AND '.join(conditions)} ORDER BY {order}"
        )
        return self._execute(statement, values).scalars()

    def _where(self, number: int, term: str, values: dict[str, Any], *, unindexed: bool, whole: bool) -> str:
        """A condition which every message that holds `term` fulfils, and few others."""
        found = self._full_text.messages_with(f"term{number}", term, values, whole=whole)
        if found is not None:
            waiting = f" UNION {_ALL_WAITING}" if unindexed else ""
            return f"message.number IN ({found}{waiting})"
        # The index cannot tell: one message after the other, in each case a letter may have.
        conditions: list[str] = []
        for place, piece in enumerate(term.split()):
            forms = dict.fromkeys((piece, piece.lower(), piece.upper(), piece.title()))
            names = [f"short{number}_{place}_{form}" for form in range(len(forms))]
            values |= {name: f"%{_as_stored(form)}%" for name, form in zip(names, forms, strict=True)}
            like = self._connection.dialect.like
            conditions.append(" OR ".join(f"message.parts {like} :{name} ESCAPE '\\'" for name in names))
        return "(" + " AND ".join(f"({condition})" for condition in conditions) + ")"


def terms_of(query: str) -> list[str]:
    """The words of a query; what stands in double quotes is one. Operators have no meaning of their own."""
    clean = _NOT_WORDS.sub(" ", encodable(query))
    found = (" ".join((phrase or word).split())[:MAX_TERM] for phrase, word in _TERM.findall(clean))
    return list(dict.fromkeys(term for term in found if term))[:MAX_TERMS]


def _as_stored(term: str) -> str:
    """A short term as it stands in a column of JSON, without wild cards."""
    stored = msgspec.json.encode(term).decode()[1:-1]
    return stored.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _hit(row: Row, body: str, query: str, terms: Sequence[str]) -> SearchHit:
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
