"""The index in FTS5: two tables that hold no text of their own.

`message_words` has every word; `message_parts` has runs of three letters. What is taken out must be spelled
as it was put in.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.storage.connection import Connection
from crushpy.storage.full_text import FullText, IndexedText

_MERGE_PAGES = 16
"""Of each table in one transaction: some milliseconds, overwriting included."""
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
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def add(self, texts: Sequence[IndexedText]) -> None:
        for statement in _ADD:
            self._execute(statement, [msgspec.structs.asdict(text) for text in texts])

    def remove(self, text: IndexedText) -> None:
        for statement in _REMOVE:
            self._execute(statement, msgspec.structs.asdict(text))

    def merge_some(self, *, begin: bool) -> bool:
        before = self._execute(_CHANGES).scalar()
        with self._connection.overwriting(), self._connection.transaction():
            for statement in _MERGE:
                self._execute(statement, {"pages": -_MERGE_PAGES if begin else _MERGE_PAGES})
        return self._execute(_CHANGES).scalar() - before > 2 * len(_MERGE)

    def words_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        values[name] = _phrase(term)
        return f"SELECT rowid FROM message_words WHERE message_words MATCH :{name}"  # noqa: S608

    def parts_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        values[name] = _all_parts(term)
        return f"SELECT rowid FROM message_parts WHERE message_parts MATCH :{name}"  # noqa: S608

    def ranked(self, terms: Sequence[str], values: dict[str, Any]) -> str:
        values["words"] = " OR ".join(map(_phrase, terms))
        return "SELECT rowid AS number, rank FROM message_words WHERE message_words MATCH :words"


def _phrase(term: str) -> str:
    """Its words one after the other; the last one may go on."""
    return '"' + term.replace('"', '""') + '" *'


def _all_parts(term: str) -> str:
    """All runs of three letters of its words."""
    lower = term.lower()
    runs = (word[at : at + 3] for word in lower.split() for at in range(len(word) - 2))
    return " AND ".join('"' + run.replace('"', '""') + '"' for run in dict.fromkeys(runs)) or '""'
