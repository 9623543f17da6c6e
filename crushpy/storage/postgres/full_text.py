"""The index on a server: for each message the keys of its words, and a list of all words there are.

Keys are four bytes each, so that the index is not larger than the messages; the words themselves are stored
once (`word_list.py`), and pg_trgm finds parts of them where the server has it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from crushpy.storage.full_text import FullText, IndexedText
from crushpy.storage.postgres.connection import PostgresConnection
from crushpy.storage.postgres.text_runs import LetterRun, array_of, counted_runs, key_of, runs_of
from crushpy.storage.postgres.word_list import SHORTEST_PART, WordList

_RANKED = 24
"""Different words that count for the rank."""
_OFTEN, _VERY_OFTEN = 3, 8
"""How often a word stands in a message counts for its rank."""
_FEW = 8
"""So many words that go on after what was typed count as well."""
_ADD = """
    INSERT INTO message_words SELECT number, CAST(words AS int[])
    FROM unnest(CAST(:numbers AS bigint[]), CAST(:words AS text[])) AS new (number, words)
"""
_CLEAR = "DELETE FROM message_words WHERE number = ANY(CAST(:numbers AS bigint[]))"
_EVERY = "SELECT number FROM message_words"
_NONE = f"{_EVERY} WHERE false"


class PostgresFullText(FullText):
    whole_words_first = True

    def __init__(self, connection: PostgresConnection) -> None:
        self._execute = connection.execute
        self._words = WordList(connection)
        self._keys: dict[str, list[int]] = {}
        """Of each term that `messages_with` was asked for: what counts for its rank."""

    def add(self, texts: Sequence[IndexedText]) -> None:
        self._words.share()
        keys: list[str] = []
        listed: dict[str, tuple[int, bool]] = {}
        for text in texts:
            words, pairs = counted_runs(text.words)
            keys.append(f"{{{','.join(map(str, _keys(words | pairs)))}}}")
            shallow, _ = counted_runs(text.parts)
            for word in words:
                if len(word) > 1:
                    _, deep = listed.get(word, (0, True))
                    listed[word] = (text.number, deep and len(word) > SHORTEST_PART and word not in shallow)
        numbers = array_of([text.number for text in texts])
        self._execute(_ADD, {"numbers": numbers, "words": array_of(keys)})
        self._words.add(listed)

    def remove(self, texts: Sequence[IndexedText]) -> None:
        numbers = [text.number for text in texts]
        self._execute(_CLEAR, {"numbers": array_of(numbers)})
        self._words.release({word for text in texts for word in counted_runs(text.words)[0]}, numbers)

    def merge_some(self, *, begin: bool) -> bool:
        """Words that no message holds any more leave the list; the server does the rest by itself."""
        return self._words.clean_some()

    def messages_with(self, name: str, term: str, values: dict[str, Any], *, whole: bool) -> str | None:
        runs = list(runs_of(term))
        if whole:
            self._keys[term] = [key_of(run.text) for run in runs]
            return _query(name, self._keys[term], None, values) if runs else _NONE
        every = [key_of(run.text) for run in runs if run.is_whole]
        edges = [run for run in runs if not run.is_whole and len(run.text) >= SHORTEST_PART]
        if not every and not edges:  # so few letters are only looked for where a word begins
            edges = [run for run in runs if run.ends and (run.text.isascii() or not run.begins)]
        found = [self._like(run) for run in edges]
        any_of = min((keys for keys in found if keys is not None), key=len, default=None)
        self._keys[term] = [key_of(run.text) for run in runs]
        if any_of is not None and len(any_of) <= _FEW:
            self._keys[term] += any_of
        if every or any_of is not None:
            return _query(name, every, any_of, values)
        return _EVERY if found and len(runs[0].text) == len(term) else None

    def _like(self, run: LetterRun) -> list[int] | None:
        begins = run.begins and len(run.text) >= SHORTEST_PART
        return self._words.like(run.text, begins=begins, ends=run.ends)

    def ranking(self, terms: Sequence[str], values: dict[str, Any]) -> tuple[str, str]:
        keys = list(dict.fromkeys(key for term in terms for key in self._keys.pop(term)))[:_RANKED]
        values |= {f"ranked{place}": key for place, key in enumerate(keys)}
        worth = " + ".join(
            f"1 - 1.0 / (1 + cardinality(array_positions(ranked.words, CAST(:ranked{place} AS int))))"
            for place in range(len(keys))
        )
        join = "LEFT JOIN message_words AS ranked ON ranked.number = message.number"
        return join, f"-({worth or 0}) / ln(2 + cardinality(ranked.words))"


def _query(name: str, every: list[int], any_of: list[int] | None, values: dict[str, Any]) -> str:
    """The messages that have each of these keys, and one at least of the others."""
    values[name] = array_of(every)
    if any_of is None:
        return f"SELECT number FROM message_words WHERE words @> CAST(:{name} AS int[])"  # noqa: S608
    values[f"{name}_any"] = array_of(any_of)
    # One after the other: to compare each message with many keys at once takes much longer.
    return (
        f"SELECT number FROM unnest(CAST(:{name}_any AS int[])) AS wanted (key) "  # noqa: S608
        f"JOIN message_words ON words @> (CAST(:{name} AS int[]) || wanted.key)"
    )


def _keys(counted: dict[str, int]) -> Iterator[int]:
    """Each once; twice for what stands there three times or more, three times for eight or more."""
    for run, many in counted.items():
        key = key_of(run)
        yield key
        if many >= _OFTEN:
            yield key
        if many >= _VERY_OFTEN:
            yield key
