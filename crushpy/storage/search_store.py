"""`store.search`: full-text search over stored messages. The index finds candidates, which are verified.

The index grows in the background, a few messages at a time, the newest first. It contains every word of a
message, and its distinct words, up to a bound, so that parts of identifiers and languages without spaces are
found as well. `index_queue` lists the messages that are not in it yet: a sequence commits out of order, so no
number says how far the index is. Text is removed with the spelling that was added: a revision that changes
`searchable` or `parts_field` must build the index again.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Image, Message, Note, Part, Seed, Text, Thinking, ToolCall, ToolResult
from crushpy.security.sanitize import encodable
from crushpy.storage.database import LETTERS, Database, IndexedText, Rows
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import CandidateRow, MessageRow
from crushpy.storage.records import EVERYTHING, CannotWriteNow, SearchHit
from crushpy.storage.session_rows import folder_key, from_row, json_text, load_reach
from crushpy.storage.statement import Statement
from crushpy.storage.storage_thread import Subject, stored
from crushpy.util.lazy_pattern import lazy_pattern

MAX_TEXT = 1_000_000
"""Characters of one message that are indexed."""
MAX_PARTS = 8_000
"""Characters of its distinct words that can be found by a part of them."""
_LONGEST_WORD = 200
BATCH_ROWS = 50
_BATCH_CHARS = 200_000
"""Indexed, or deleted, in one transaction: a few milliseconds."""
_REPEATS = "recall"
"""The tool that quotes stored messages: only the originals are found."""
_WORD = lazy_pattern(r"\S+")


def index_some(db: Database, sessions: Sequence[str] = ()) -> bool:
    """Indexes some of the newest messages, or of those of `sessions`. False if none of them is left."""
    statement = sql.LIST_UNINDEXED_OF_SESSIONS if sessions else sql.LIST_UNINDEXED
    texts = indexed_texts(db.execute(statement, sessions=json_text(sessions), many=BATCH_ROWS))
    if texts:
        with db.transaction():
            numbers = json_text([each.number for each in texts])
            taken = set(db.execute(sql.DEQUEUE_MESSAGES, numbers=numbers).scalars())
            if mine := [each for each in texts if each.number in taken]:  # other processes took the rest
                db.full_text.add(mine)
    return bool(texts)


def indexed_texts(rows: Rows[MessageRow]) -> list[IndexedText]:
    """Of the first of these messages; computed before the transaction, so that others do not wait."""
    texts: list[IndexedText] = []
    size = 0
    for row in rows:
        body = searchable(from_row(Message, row))
        texts.append(IndexedText(row.number, body, parts_field(body)))
        size += len(row.parts)
        if size > _BATCH_CHARS:
            break
    rows.close()
    return texts


def remove_texts(db: Database, texts: Sequence[IndexedText]) -> None:
    """Inside the transaction that deletes these messages, before they are deleted."""
    numbers = json_text([text.number for text in texts])
    queued = set(db.execute(sql.DEQUEUE_MESSAGES, numbers=numbers).scalars())
    db.full_text.remove([text for text in texts if text.number not in queued])


def load_search_reach(db: Database, session_id: str) -> dict[str, int]:
    """The sessions that a search within one session covers, each with the number of its last message."""
    reach = dict(load_reach(db, session_id))
    tasks = db.execute(sql.LIST_TASKS_OF_LINEAGE, reach=json_text(reach)).scalars()
    return reach | {task: EVERYTHING for task in tasks if task not in reach}


def searchable(message: Message) -> str:
    """The text that a message can be found by."""
    texts = [text for part in message.parts if (text := _found_by(part)) is not None]
    return "\n".join(texts)[:MAX_TEXT].replace("\0", " ")


def _found_by(part: Part) -> str | None:
    match part:
        case ToolCall(name=name) | ToolResult(name=name) if name == _REPEATS:
            return None
        case Text() | Note() | ToolResult():
            return part.text
        case ToolCall():
            return f"{part.name} {part.bad_json or _plain(part.args)}"
        case Seed():
            return part.summary
        case Image():
            return part.name
        case Thinking():
            return None


def parts_field(body: str) -> str:
    """The distinct words of a text, as far as they can be found by a part."""
    words: dict[str, None] = {}
    size = 0
    for found in _WORD.finditer(body):
        word = found[0][:_LONGEST_WORD].lower()
        if len(word) < 3 or word in words:
            continue
        words[word] = None
        size += len(word) + 1
        if size > MAX_PARTS:
            break
    return " ".join(words)


def _plain(value: Any) -> str:
    """Arguments as text without JSON's escapes: what a person would type to find them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{key} {_plain(item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return " ".join(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return msgspec.json.encode(value).decode()


SEARCH_INDEX_BUDGET_S = 0.3
"""Time that a search spends on the index first."""
MAX_TERMS = 24
MAX_TERM_CHARS = 200
SNIPPET_MARGIN_CHARS = 160
"""On each side of a match."""
SNIPPET_MATCH_CHARS = 1_000
_TERM = lazy_pattern(r'"([^"]*)"|([^\s"]+)')
_SNIPPET_PLACES = 8
"""Of one word, how many places in a text are weighed for the snippet."""
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f]+")
_FIRST_PAGE_ROWS, _MAX_PAGE_ROWS = 32, 512
"""Candidates whose texts are read at once."""


class _Wanted(Data, frozen=True):
    terms: Sequence[str]
    reach: dict[str, int] | None
    """Only these sessions, each up to a message number."""
    cwd: str | None
    every: bool = True
    """All terms, or any."""


class SearchStore(Subject):
    async def find(
        self, query: str, *, within: str | None = None, cwd: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        """Messages with the words of `query`, best first; `within` one session's lineage and tasks."""
        with suppress(CannotWriteNow):  # indexed messages are found
            await self._catch_up(within)
        return await self._thread.run(lambda: self._find(query, within, cwd, limit))

    async def index_more(self) -> int:
        """Spends a moment on the index; how many messages a search cannot find after it. `CannotWriteNow` if
        others write."""
        await self._catch_up(None)
        return await self.count_unindexed()

    @stored
    def count_unindexed(self) -> int:
        """How many messages a search cannot find yet."""
        return self._db.execute(sql.COUNT_UNINDEXED).scalar() or 0

    async def _catch_up(self, within: str | None) -> None:
        """Indexes what a search covers, in steps: writes of a running turn do not wait for all of it."""
        sessions: list[str] = []
        deadline = time.monotonic() + SEARCH_INDEX_BUDGET_S
        if within is not None:
            sessions = await self._thread.run(lambda: list(load_search_reach(self._db, within)))
            deadline = math.inf

        def index() -> bool:
            with self._db.no_wait():
                return index_some(self._db, sessions)

        while await self._thread.run(index) and time.monotonic() <= deadline:
            pass

    def _find(self, query: str, within: str | None, cwd: str | None, limit: int) -> list[SearchHit]:
        """All words first; if no message has them all, any of them. `within` a session also messages that are
        not in the index yet."""
        terms = split_query(query)
        if not terms:
            raise UsageError("there is nothing to search for", 'Give a word or a "phrase in quotes".')
        reach = load_search_reach(self._db, within) if within is not None else None
        hits = list(islice(self._hits(query, _Wanted(terms, reach, cwd)), limit))
        if hits or len(terms) == 1:
            return hits
        return list(islice(self._hits(query, _Wanted(terms, reach, cwd, every=False)), limit))

    def _hits(self, query: str, wanted: _Wanted) -> Iterator[SearchHit]:
        """The candidates that really contain the words."""
        needed = all if wanted.every else any
        for row in self._candidates(wanted):
            body = searchable(from_row(Message, row))
            lower = body.lower()
            if needed(term.lower() in lower for term in wanted.terms):
                start, end = _snippet_range(body, query, wanted.terms)
                snippet = f"{'…' if start else ''}{body[start:end].strip()}{'…' if end < len(body) else ''}"
                about = (row.id, row.session_id, row.root_id, row.title, row.role, row.created_at)
                yield SearchHit(*about, snippet)

    def _candidates(self, wanted: _Wanted) -> Iterator[CandidateRow]:
        """Best first. The texts are read a page at a time: usually the first page is enough."""
        numbers = self._numbers(wanted)
        size = _FIRST_PAGE_ROWS
        while numbers:
            page, numbers = numbers[:size], numbers[size:]
            rows = {row.number: row for row in self._db.execute(sql.LIST_CANDIDATES, numbers=json_text(page))}
            yield from (rows[number] for number in page if number in rows)
            size = min(2 * size, _MAX_PAGE_ROWS)

    def _numbers(self, wanted: _Wanted) -> list[int]:
        index, values = self._db.full_text, dict[str, Any]()
        sessions = json_text(list(wanted.reach or ()))
        unindexed = bool(
            wanted.reach is not None
            and self._db.execute(sql.IS_ANY_UNINDEXED, sessions=sessions, many=1).scalar()
        )
        each = [
            self._condition(number, term, values, unindexed=unindexed)
            for number, term in enumerate(wanted.terms)
        ]
        conditions = [f"({(' AND ' if wanted.every else ' OR ').join(each)})", "session.kind != 'deleted'"]
        if wanted.cwd is not None:
            values["cwd"] = folder_key(wanted.cwd)
            conditions.append("session.cwd = :cwd")
        reach = join = ""
        if wanted.reach is not None:
            values["reach"] = json_text(wanted.reach)
            reach = f"WITH reach (id, last) AS MATERIALIZED ({index.reach_query}) "
            join = "JOIN reach ON reach.id = message.session_id AND message.number <= reach.last "
        ranked, order = "", "message.number DESC"
        if spelled := [term for term in wanted.terms if LETTERS.search(term)]:
            ranked, rank = index.rank(spelled, values)
            order = f"coalesce({rank}, 0), message.number DESC"
        statement = (
            f"{reach}SELECT message.number FROM message "  # noqa: S608  # our own words
            f"JOIN session ON session.id = message.session_id {join}{ranked} "
            f"WHERE {' AND '.join(conditions)} ORDER BY {order}"
        )
        return self._db.execute(Statement[Any](statement), **values).scalars()

    def _condition(self, number: int, term: str, values: dict[str, Any], *, unindexed: bool) -> str:
        """A condition that holds for every message with `term`, and for few others."""
        index = self._db.full_text
        found = index.find_term(f"term{number}", term, values)
        if found is not None:
            queued = " UNION SELECT number FROM index_queue" if unindexed else ""
            return f"message.number IN ({found}{queued})"
        # The index cannot tell: every message is examined, for each case a letter may have.
        conditions: list[str] = []
        for place, piece in enumerate(term.split()):
            forms = dict.fromkeys((piece, piece.lower(), piece.upper(), piece.title()))
            names = [f"short{number}_{place}_{form}" for form in range(len(forms))]
            # As they are in a column of JSON, without wildcards.
            texts = [re.sub(r"([\\%_])", r"\\\1", json_text(form)[1:-1]) for form in forms]
            values |= {name: f"%{text}%" for name, text in zip(names, texts, strict=True)}
            like = index.like_operator
            conditions.append(" OR ".join(f"message.parts {like} :{name} ESCAPE '\\'" for name in names))
        return "(" + " AND ".join(f"({condition})" for condition in conditions) + ")"


def split_query(query: str) -> list[str]:
    """The words of a query; a phrase in double quotes is one. There are no operators."""
    clean = _CONTROL.sub(" ", encodable(query))
    found = (" ".join((phrase or word).split())[:MAX_TERM_CHARS] for phrase, word in _TERM.findall(clean))
    return list(dict.fromkeys(term for term in found if term))[:MAX_TERMS]


def _snippet_range(body: str, query: str, terms: Sequence[str]) -> tuple[int, int]:
    """The part of a text to show: around the query as it was typed, else where most of its words are."""
    lower = body.lower() if len(body.lower()) == len(body) else body  # a few letters change their length
    words = [term.lower() for term in terms]
    typed = query.replace('"', " ").lower().split()
    margin = SNIPPET_MARGIN_CHARS
    whole = re.search(r"\s+".join(map(re.escape, typed)), lower)
    if whole:
        return max(0, whole.start() - margin), min(whole.end(), whole.start() + SNIPPET_MATCH_CHARS) + margin
    places = sorted(
        (found.start(), word)
        for word in words
        for found in islice(re.finditer(re.escape(word), lower), _SNIPPET_PLACES)
    )
    starts = [start for start, _ in places]
    near = {start: {word for at, word in places if start <= at < start + margin} for start in starts}
    best = max(starts, key=lambda start: len(near[start]), default=0)
    return max(0, best - margin), best + margin
