"""The full-text index of PostgreSQL: a tsvector of the words of each message, and trigrams of their parts.

Text is split here and not by the server, whose rules depend on the language of its database. A revision that
changes how must build the index again: a query must be spelled as the index was.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crushpy.storage.database import FullTextIndex, IndexedText
from crushpy.storage.session_rows import json_text
from crushpy.storage.statement import Statement

TRIGRAM_INDEX = (
    "CREATE INDEX message_by_parts ON crushpy.message_words USING gin (parts gin_trgm_ops) "
    "WITH (gin_pending_list_limit = 256)"
)
_MAX_WORD_CHARS = 200
_MAX_VECTOR_BYTES = 900_000
"""A tsvector is limited to a megabyte: the words of a larger message are in several rows."""
_MAX_COUNT = 8
"""Occurrences of a word that count for its rank."""
_MIN_PART_CHARS = 3
# Thai and Lao, Burmese, Hangul's letters, Khmer, Japanese and Chinese, Hangul, half-width katakana.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")
_ADD = Statement[Any](
    "INSERT INTO message_words VALUES (:number, :piece, CAST(:words AS tsvector), :parts) "
    "ON CONFLICT DO NOTHING"
)
_REMOVE = Statement[Any](
    "DELETE FROM message_words WHERE number IN "
    "(SELECT CAST(jsonb_array_elements_text(CAST(:numbers AS jsonb)) AS bigint))"
)


class _Run(NamedTuple):
    """A word in lower case, or two characters of a script without spaces, and its place in the text."""

    text: str
    at_start: bool
    at_end: bool


class PostgresFullText(FullTextIndex):
    like_operator = "ILIKE"
    reach_query = "SELECT key, CAST(value AS bigint) FROM json_each_text(CAST(:reach AS json))"

    def add(self, texts: Sequence[IndexedText]) -> None:
        rows = [
            {"number": text.number, "piece": piece, "words": words, "parts": "" if piece else text.parts}
            for text in texts
            for piece, words in enumerate(_vectors(text.words))
        ]
        self._db.execute_many(_ADD, rows)

    def remove(self, texts: Sequence[IndexedText]) -> None:
        self._db.execute(_REMOVE, numbers=json_text([text.number for text in texts]))

    def find_term(self, name: str, term: str, values: dict[str, Any]) -> str | None:
        runs = list(_split(term))
        if len(runs) == 1 and runs[0].at_start:
            return self._find_part(name, runs[0], values)
        # The first run may be the end of a longer word: it does not restrict the candidates.
        known = [_or_longer(run) for run in runs if not run.at_start]
        return _with_words(name, known, values) if known else None

    def _find_part(self, name: str, run: _Run, values: dict[str, Any]) -> str | None:
        """A run that may be any part of a word: by its beginning, and if it is long enough by trigrams."""
        words = _with_words(name, [_or_longer(run)], values)
        if len(run.text) < _MIN_PART_CHARS:
            return words if run.at_end and run.text.isascii() else None
        values[f"{name}_part"] = f"%{run.text}%"
        return f"{words} UNION SELECT number FROM message_words WHERE parts LIKE :{name}_part"  # noqa: S608

    def rank(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        words = dict.fromkeys(run.text for term in terms for run in _split(term))
        values["whole"] = " | ".join(words)
        values["longer"] = " | ".join(f"{word}:*" for word in words)
        join = "LEFT JOIN message_words AS ranked ON ranked.number = message.number AND ranked.piece = 0"
        ranks = [f"ts_rank(ranked.words, CAST(:{name} AS tsquery), 1)" for name in ("whole", "longer")]
        return join, f"-(2 * {ranks[0]} + {ranks[1]})"


def _or_longer(run: _Run) -> str:
    return f"{run.text}:*" if run.at_end else run.text


def _with_words(name: str, words: Sequence[str], values: dict[str, Any]) -> str:
    """The messages with each of these words. They are letters and digits: nothing needs quoting."""
    values[name] = " & ".join(words)
    return f"SELECT number FROM message_words WHERE words @@ CAST(:{name} AS tsquery)"  # noqa: S608


def _split(text: str) -> Iterator[_Run]:
    """All words of a text in order. Of an unspaced script, pairs of characters, without a place."""
    lower = text.lower()
    for found in _RUN.finditer(lower):
        run = found[0]
        if found.lastgroup is None:
            yield _Run(run[:_MAX_WORD_CHARS], found.start() == 0, found.end() == len(lower))
        else:
            yield from (_Run(run[at : at + 2], False, False) for at in range(len(run) - 1))


def _vectors(text: str) -> Iterator[str]:
    """The words of a text as tsvectors: as many positions as occurrences, up to a bound."""
    words: list[str] = []
    size = 0
    for word, many in Counter(run.text for run in _split(text)).items():
        positions = range(1, min(many, _MAX_COUNT) + 1)
        size += len(word.encode()) + 2 * len(positions) + 4
        if size > _MAX_VECTOR_BYTES:
            yield " ".join(words)
            words, size = [], 0
        words.append(f"{word}:{','.join(map(str, positions))}")
    yield " ".join(words)
