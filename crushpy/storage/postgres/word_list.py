"""Each word that any message has, once: how a part of a word, or its beginning, is found on a server.

Each has the number of one message that holds it. When that is deleted the word waits, without a number, until
somebody has looked whether another message holds it; otherwise it goes. Lives on the storage thread.
"""

from collections.abc import Collection, Mapping, Sequence

from crushpy.storage.postgres.connection import PostgresConnection
from crushpy.storage.postgres.text_runs import array_of, key_of

SHORTEST_PART = 3
"""Letters of a part that is looked for inside of words."""
MOST_WORDS = 500
"""With more words that a part stands in, it stands in nearly every message."""
_AT_ONCE = 20
"""Words that are looked after in one transaction: some milliseconds."""
_RECENT = 300
"""Messages that are looked at first: they hold nearly every word that many do."""
# Whoever adds messages shares the lock; whoever takes words out has it alone: none is taken out that a
# message holds which is being added.
_LOCK_KEY = 0x63727077
_SHARE = f"SELECT pg_advisory_xact_lock_shared({_LOCK_KEY})"
_LOCK = f"SELECT pg_advisory_xact_lock({_LOCK_KEY})"
# In one order, so that two who add the same words do not wait for each other.
_ADD = """
    INSERT INTO word (text, number, deep)
    SELECT * FROM unnest(CAST(:texts AS text[]), CAST(:numbers AS bigint[]), CAST(:deep AS boolean[]))
    ON CONFLICT (text) DO NOTHING
"""
_SURFACE = "UPDATE word SET deep = false WHERE deep AND text = ANY(CAST(:texts AS text[]))"
_RELEASE = """
    UPDATE word SET number = NULL
    WHERE text = ANY(CAST(:texts AS text[])) AND number = ANY(CAST(:numbers AS bigint[]))
"""
_UNSURE = "SELECT text FROM word WHERE number IS NULL ORDER BY text LIMIT :many"
_RECENT_HOLDERS = """
    SELECT key, max(number) AS number FROM (
        SELECT number, unnest(words) AS key
        FROM (SELECT number, words FROM message_words ORDER BY number DESC LIMIT :recent) AS recent
    ) AS held WHERE key = ANY(CAST(:keys AS int[])) GROUP BY key
"""
# `+ 0`: by the index of words. By that of numbers all messages would be read for a word that is gone.
_HOLDERS = """
    SELECT wanted.key, (SELECT max(number + 0) FROM message_words WHERE words @> ARRAY[wanted.key]) AS number
    FROM unnest(CAST(:keys AS int[])) AS wanted (key)
"""
_KEEP = "UPDATE word SET number = :number WHERE text = :text"
_DROP = "DELETE FROM word WHERE text = ANY(CAST(:texts AS text[]))"


class WordList:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def share(self) -> None:
        """Inside the transaction that adds messages, before anything of them is added."""
        self._execute(_SHARE)

    def add(self, words: Mapping[str, tuple[int, bool]]) -> None:
        """Each with a message that holds it, and whether it stands too deep there to be found by a part."""
        texts = sorted(words)
        numbers, deep = [words[text][0] for text in texts], [words[text][1] for text in texts]
        self._execute(_ADD, {"texts": array_of(texts), "numbers": array_of(numbers), "deep": array_of(deep)})
        self._execute(_SURFACE, {"texts": array_of([text for text in texts if not words[text][1]])})

    def release(self, words: Collection[str], numbers: Collection[int]) -> None:
        """The words of messages that are being deleted, and their numbers."""
        self._execute(_RELEASE, {"texts": array_of(words), "numbers": array_of(numbers)})

    def clean_some(self) -> bool:
        """Takes out some of the words that no message holds any more. False where none is left to look at."""
        with self._connection.transaction():
            self._execute(_LOCK)
            texts: list[str] = self._execute(_UNSURE, {"many": _AT_ONCE}).scalars()
            if not texts:
                return False
            held = self._holders([key_of(text) for text in texts])
            kept = [{"text": text, "number": held[key_of(text)]} for text in texts if key_of(text) in held]
            self._execute(_KEEP, kept)
            self._execute(_DROP, {"texts": array_of([text for text in texts if key_of(text) not in held])})
        return len(texts) == _AT_ONCE

    def _holders(self, keys: Sequence[int]) -> dict[int, int]:
        """Of those keys that any message has: one that does."""
        values = {"keys": array_of(keys), "recent": _RECENT}
        held: dict[int, int] = {row.key: row.number for row in self._execute(_RECENT_HOLDERS, values)}
        left = [key for key in keys if key not in held]
        if left:
            found = self._execute(_HOLDERS, {"keys": array_of(left)})
            held |= {row.key: row.number for row in found if row.number is not None}
        return held

    def like(self, text: str, *, begins: bool, ends: bool) -> list[int] | None:
        """Keys of the words that `text` is the end, the beginning, or any part of. None: too many."""
        # Of letters only: there is no wild card in it.
        values = {"many": MOST_WORDS + 1, "part": f"%{text}{'%' if ends else ''}", "first": f"{text}%"}
        choices: list[str] = []
        if begins:
            choices.append("text LIKE :part AND NOT deep")
        if ends:
            choices.append("text LIKE :first AND deep" if begins else "text LIKE :first")
        statement = " UNION ALL ".join(f"SELECT text FROM word WHERE {choice}" for choice in choices)  # noqa: S608
        found = self._execute(f"{statement} LIMIT :many", values).scalars()
        if len(found) > MOST_WORDS:
            return None
        return list({key_of(text), *map(key_of, found)})
