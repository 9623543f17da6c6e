"""The full-text index: grows in the background, a few messages at a time, the newest first.

It has every word of a message, and its different words, up to a bound, so that parts of identifiers and
languages without spaces are found too. `index_queue` names the messages that are not in it yet: a sequence
commits out of order, so no number says how far the index is. What is taken out must be spelled as it was put
in: who changes `searchable` or `parts_field` makes the index anew in a migration.

Lives on the storage thread.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.core.messages import Image, Message, Note, Part, Seed, Text, Thinking, ToolCall, ToolResult
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.full_text import FullText, IndexedText
from crushpy.storage.row_mapping import MESSAGE_COLUMNS, message_from_row
from crushpy.storage.rows import Row
from crushpy.util.freed_memory import LARGE, hand_back_freed

MAX_TEXT = 1_000_000
"""Characters of one message that are indexed."""
MAX_PARTS = 8_000
"""Characters of its different words that can be found by a part of them."""
_LONGEST_WORD = 200
_BATCH = 50
_BATCH_CHARS = 200_000
"""So much is indexed in one transaction: a few milliseconds."""
_REPEATS = "recall"
"""The tool that quotes what is stored: neither its queries nor its answers are found, the original is."""
_WORD = re.compile(r"\S+")

_WAITING = (
    "SELECT message.number, length(parts) AS size FROM index_queue "
    "JOIN message ON message.number = index_queue.number "
    "ORDER BY index_queue.number DESC LIMIT :many"
)
_WAITING_OF = (
    "SELECT message.number, length(parts) AS size FROM index_queue "
    "JOIN message ON message.number = index_queue.number "
    "WHERE message.session_id IN ({}) ORDER BY index_queue.number DESC LIMIT :many"
)
_MESSAGES = f"SELECT number, {MESSAGE_COLUMNS} FROM message WHERE number IN ({{}})"  # noqa: S608  # our own names
_LEFT = "SELECT count(*) FROM index_queue"
_TAKE_ALL = "DELETE FROM index_queue WHERE number IN ({}) RETURNING number"
_QUEUE = "INSERT INTO index_queue SELECT number FROM message WHERE id = :id ON CONFLICT DO NOTHING"
_QUEUE_SESSION = (
    "INSERT INTO index_queue SELECT number FROM message "
    "WHERE session_id = :session AND seq > :after ON CONFLICT DO NOTHING"
)


class SearchIndex:
    def __init__(self, connection: Connection, full_text: FullText) -> None:
        self._connection = connection
        self._full_text = full_text
        self._waiting_of = _WAITING_OF.format(connection.dialect.items_of.format(":sessions"))
        self._messages = _MESSAGES.format(
            connection.dialect.bytes_of.format("parts"), connection.dialect.numbers_of.format(":numbers")
        )
        self._take_all = _TAKE_ALL.format(connection.dialect.numbers_of.format(":numbers"))
        self._execute = connection.execute

    # --- what waits ------------------------------------------------------------------------------------

    def queue(self, message_ids: Sequence[str]) -> None:
        """Inside the transaction that stores these messages."""
        self._execute(_QUEUE, [{"id": message_id} for message_id in message_ids])

    def queue_session(self, session_id: str, after: int) -> None:
        """Inside the transaction that stores many: those behind number `after` of the session."""
        self._execute(_QUEUE_SESSION, {"session": session_id, "after": after})

    def left(self) -> int:
        """How many messages are not in the index yet."""
        return self._execute(_LEFT).scalar() or 0

    # --- growing and shrinking -------------------------------------------------------------------------

    def add_some(self, sessions: Sequence[str] = ()) -> bool:
        """Takes some of the newest that wait, or of those of `sessions`. False where none of them is left."""
        values: dict[str, Any] = {"many": _BATCH}
        if sessions:
            values["sessions"] = to_column(sessions)
        rows = self._execute(self._waiting_of if sessions else _WAITING, values).all()
        texts = self.texts([row.number for row in up_to(rows, _BATCH_CHARS)])
        if texts:
            with self._connection.transaction():
                numbers = to_column([each.number for each in texts])
                taken = set(self._execute(self._take_all, {"numbers": numbers}).scalars())
                if mine := [each for each in texts if each.number in taken]:  # others took the rest
                    self._full_text.add(mine)
        if rows and rows[0].size > LARGE:
            hand_back_freed()
        return bool(rows)

    def texts(self, numbers: Sequence[int]) -> list[IndexedText]:
        """Of these messages; made before others have to wait."""
        rows = self._execute(self._messages, {"numbers": to_column(numbers)}) if numbers else ()
        return [_indexed(row) for row in rows]

    def remove(self, texts: Sequence[IndexedText]) -> None:
        """Inside the transaction that deletes these messages, before they are."""
        numbers = to_column([text.number for text in texts])
        waited = set(self._execute(self._take_all, {"numbers": numbers}).scalars())
        self._full_text.remove([text for text in texts if text.number not in waited])

    def merge_some(self, *, begin: bool) -> bool:
        """Rewrites a part of the index, so that what was removed leaves the disk. False where it has."""
        return self._full_text.merge_some(begin=begin)


def searchable(message: Message) -> str:
    """What a message can be found by."""
    pieces: list[str] = []
    size = 0
    for part in message.parts:
        text = _found_by(part)
        if text is not None and size <= MAX_TEXT:
            pieces += [text, "\n"]
            size += len(text) + 1
    return "".join(pieces[:-1])[:MAX_TEXT].replace("\0", " ")


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
    """The different words of a text, as far as they can be found by a part."""
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


def _indexed(row: Row) -> IndexedText:
    body = searchable(message_from_row(row))
    return IndexedText(row.number, body, parts_field(body))


def up_to(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """The first of them, one at least, up to so many characters."""
    size = 0
    for place, row in enumerate(rows):
        size += row.size
        if size > most:
            return rows[: place + 1]
    return rows


def _plain(value: Any) -> str:
    """Arguments as text without JSON's escapes: what a person would type to find them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(f"{key} {_plain(item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return " ".join(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return msgspec.json.encode(value).decode()
