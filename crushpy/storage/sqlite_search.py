"""The full-text index of SQLite: two FTS5 tables without a copy of the text.

`message_words` contains every word; `message_parts` contains trigrams. Text is removed with exactly the
spelling that was added.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.storage.database import LETTERS, Database, FullTextIndex, IndexedText, handwritten

FULL_TEXT_SCHEMA = (
    "CREATE VIRTUAL TABLE message_words USING fts5 "
    "(text, content = '', tokenize = 'unicode61 remove_diacritics 0')",
    "CREATE VIRTUAL TABLE message_parts USING fts5 (text, content = '', tokenize = 'trigram', detail = none)",
)
_MERGE_PAGES = 16
"""Pages of each table that are merged in one transaction, including overwriting: a few milliseconds."""
_TRIGRAM = 3
_FIELDS = (("message_words", "words"), ("message_parts", "parts"))
_ADD = "INSERT INTO {0} (rowid, text) VALUES (:number, :{1})"
_REMOVE = "INSERT INTO {0} ({0}, rowid, text) VALUES ('delete', :number, :{1})"
_MERGE = "INSERT INTO {0} ({0}, rank) VALUES ('merge', :pages)"
_CHANGES = handwritten("SELECT total_changes()")


class SqliteFullText(FullTextIndex):
    like_operator = "LIKE"
    reach_query = "SELECT key, value FROM json_each(:reach)"

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, texts: Sequence[IndexedText]) -> None:
        self._write(_ADD, texts)

    def remove(self, texts: Sequence[IndexedText]) -> None:
        self._write(_REMOVE, texts)

    def _write(self, statement: str, texts: Sequence[IndexedText]) -> None:
        for names in _FIELDS:
            rows = [msgspec.structs.asdict(text) for text in texts]
            self._db.execute_many(handwritten(statement.format(*names)), rows)

    def merge_some(self, *, begin: bool) -> bool:
        before = self._db.execute(_CHANGES).scalar()
        with self._db.secure_delete(), self._db.transaction():
            for names in _FIELDS:
                pages = -_MERGE_PAGES if begin else _MERGE_PAGES
                self._db.execute(handwritten(_MERGE.format(*names)), pages=pages)
        return self._db.execute(_CHANGES).scalar() - before > 2 * len(_FIELDS)

    def find_term(self, name: str, term: str, values: dict[str, Any]) -> str | None:
        has_parts = len(term) >= _TRIGRAM
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

    def rank(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        values["words"] = " OR ".join(map(_phrase, terms))
        ranks = "SELECT rowid AS number, rank FROM message_words WHERE message_words MATCH :words"
        return f"LEFT JOIN ({ranks}) AS ranked ON ranked.number = message.number", "ranked.rank"


def _phrase(term: str) -> str:
    """Its words in order; the last one may be longer."""
    return '"' + term.replace('"', '""') + '" *'


def _all_parts(term: str) -> str:
    """All trigrams of its words."""
    lower = term.lower()
    runs = (word[at : at + _TRIGRAM] for word in lower.split() for at in range(len(word) - _TRIGRAM + 1))
    return " AND ".join('"' + run.replace('"', '""') + '"' for run in dict.fromkeys(runs)) or '""'
