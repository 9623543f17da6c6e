"""The index on a server: words as tsvectors made here, parts of words by pg_trgm where the server has it.

The words are taken apart here and not by the server, whose rules follow the language of its database.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from crushpy.storage.full_text import FullText, IndexedText
from crushpy.storage.postgres.connection import PostgresConnection

_WORD = re.compile(r"[^\W_]+")
_LONGEST = 200
_OCCURRENCES = 8
"""How often a word stands in a message counts for its rank, up to this."""
_PIECE = 600_000
"""Bytes of words in one row; the server takes no more than a megabyte."""
_CLEAR = "DELETE FROM message_words WHERE number = :number"
_ADD_WORDS = "INSERT INTO message_words VALUES (:number, :piece, CAST(:words AS tsvector))"
_ADD_PARTS = "INSERT INTO message_parts VALUES (:number, :parts)"
_CLEAR_PARTS = "DELETE FROM message_parts WHERE number = :number"


class PostgresFullText(FullText):
    def __init__(self, connection: PostgresConnection) -> None:
        self._execute = connection.execute

    def add(self, texts: Sequence[IndexedText]) -> None:
        rows = [
            {"number": text.number, "piece": piece, "words": words}
            for text in texts
            for piece, words in enumerate(_vectors(text.words))
        ]
        self._execute(_ADD_WORDS, rows)
        self._execute(_ADD_PARTS, [{"number": text.number, "parts": text.parts} for text in texts])

    def remove(self, text: IndexedText) -> None:
        self._execute(_CLEAR, {"number": text.number})
        self._execute(_CLEAR_PARTS, {"number": text.number})

    def merge_some(self, *, begin: bool) -> bool:
        """The server does that by itself (autovacuum)."""
        return False

    def words_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        values[name] = _query(term)
        return f"SELECT number FROM message_words WHERE words @@ CAST(:{name} AS tsquery)"  # noqa: S608

    def parts_like(self, name: str, term: str, values: dict[str, Any]) -> str:
        conditions: list[str] = []
        for place, word in enumerate(one for one in term.lower().split() if len(one) >= 3):
            values[f"{name}_{place}"] = f"%{_literally(word)}%"
            conditions.append(f"parts LIKE :{name}_{place} ESCAPE '\\'")
        return f"SELECT number FROM message_parts WHERE {' AND '.join(conditions) or 'false'}"  # noqa: S608

    def ranked(self, terms: Sequence[str], values: dict[str, Any]) -> str:
        values["words"] = " | ".join(f"({_query(term)})" for term in terms)
        return (
            "SELECT number, -max(ts_rank(words, CAST(:words AS tsquery), 1)) AS rank FROM message_words "
            "WHERE words @@ CAST(:words AS tsquery) GROUP BY number"
        )


def _vectors(body: str) -> Iterator[str]:
    """The words of a text with how often they stand in it, in the server's own notation."""
    counted = Counter(found[0][:_LONGEST].lower() for found in _WORD.finditer(body))
    words: list[str] = []
    size = 0
    for word, count in counted.items():
        many = min(count, _OCCURRENCES)
        words.append(f"'{word}':{','.join(map(str, range(1, many + 1)))}")
        size += len(word.encode()) + 4 + 2 * many
        if size > _PIECE:
            yield " ".join(words)
            words, size = [], 0
    yield " ".join(words)


def _query(term: str) -> str:
    """All its words; the last one may go on."""
    words = [word[:_LONGEST] for word in _WORD.findall(term.lower())]
    return " & ".join(f"'{word}'" for word in words) + ":*" if words else ""


def _literally(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
