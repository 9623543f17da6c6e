"""The index in FTS5: two tables that hold no text of their own.

`message_words` has every word; `message_parts` has runs of three letters. What is taken out must be spelled
as it was put in.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.storage.connection import Connection
from crushpy.storage.full_text import LETTERS, FullText, IndexedText

_STEP_SECONDS = 0.008
"""So long others should wait for a merge at most: it takes as many pages at once as that allows."""
_MERGE_PAGES = 16
_FEWEST_PAGES, _MOST_PAGES = 2, 64
_RUN = 3
"""Letters of which a part has one at least."""
_FIELDS = (("message_words", "words"), ("message_parts", "parts"))
_ADD = tuple(
    f"INSERT INTO {table} (rowid, text) VALUES (:number, :{field})"  # noqa: S608  # our own names
    for table, field in _FIELDS
)
_REMOVE = tuple(
    f"INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', :number, :{field})"  # noqa: S608
    for table, field in _FIELDS
)
_MERGE = tuple(
    f"INSERT INTO {table} ({table}, rank) VALUES ('merge', :pages)"  # noqa: S608
    for table, _ in _FIELDS
)
_CHANGES = "SELECT total_changes()"


class SqliteFullText(FullText):
    whole_words_first = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._pages = _MERGE_PAGES
        """Of each table that are merged in one transaction, overwriting included."""

    def add(self, texts: Sequence[IndexedText]) -> None:
        for statement in _ADD:
            self._execute(statement, [msgspec.structs.asdict(text) for text in texts])

    def remove(self, texts: Sequence[IndexedText]) -> None:
        for statement in _REMOVE:
            self._execute(statement, [msgspec.structs.asdict(text) for text in texts])

    def merge_some(self, *, begin: bool) -> bool:
        before = self._execute(_CHANGES).scalar()
        with self._connection.overwriting(), self._connection.transaction():
            began = time.monotonic()
            for statement in _MERGE:
                self._execute(statement, {"pages": -self._pages if begin else self._pages})
            took = time.monotonic() - began
        if took > _STEP_SECONDS:
            self._pages = max(self._pages // 2, _FEWEST_PAGES)
        elif took < _STEP_SECONDS / 4:
            self._pages = min(self._pages * 2, _MOST_PAGES)
        return self._execute(_CHANGES).scalar() - before > 2 * len(_MERGE)

    def messages_with(self, name: str, term: str, values: dict[str, Any], *, whole: bool) -> str | None:
        has_parts = len(term) >= _RUN
        if not has_parts and not (term.isascii() and term.isalnum()):
            return None
        found: list[str] = []
        if LETTERS.search(term):
            values[f"{name}_words"] = _phrase(term)
            found.append(f"SELECT rowid FROM message_words WHERE message_words MATCH :{name}_words")  # noqa: S608
        if has_parts:
            values[f"{name}_parts"] = _all_parts(term)
            found.append(f"SELECT rowid FROM message_parts WHERE message_parts MATCH :{name}_parts")  # noqa: S608
        return " UNION ".join(found)

    def ranking(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        values["words"] = " OR ".join(map(_phrase, terms))
        ranks = "SELECT rowid AS number, rank FROM message_words WHERE message_words MATCH :words"
        return f"LEFT JOIN ({ranks}) AS ranked ON ranked.number = message.number", "ranked.rank"


def _phrase(term: str) -> str:
    """Its words one after the other; the last one may go on."""
    return '"' + term.replace('"', '""') + '" *'


def _all_parts(term: str) -> str:
    """All runs of three letters of its words."""
    lower = term.lower()
    runs = (word[at : at + _RUN] for word in lower.split() for at in range(len(word) - _RUN + 1))
    return " AND ".join('"' + run.replace('"', '""') + '"' for run in dict.fromkeys(runs)) or '""'
