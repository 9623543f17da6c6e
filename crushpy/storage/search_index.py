"""The full-text index: grows in the background, a few messages at a time, the newest first.

It contains every word of a message, and its distinct words, up to a bound, so that parts of identifiers and
languages without spaces are found as well. `index_queue` lists the messages that are not in it yet: a
sequence commits out of order, so no number says how far the index is. Text is removed with the spelling that
was added: a revision that changes `searchable` or `parts_field` must build the index again.

Functions for the storage thread.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.core.messages import Image, Message, Note, Part, Seed, Text, Thinking, ToolCall, ToolResult
from crushpy.storage.codec import json_text, message_from_row
from crushpy.storage.database import Database, IndexedText
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import MessageRow, MessageSizeRow
from crushpy.storage.records import EVERYTHING
from crushpy.storage.session_rows import load_reach

MAX_TEXT = 1_000_000
"""Characters of one message that are indexed."""
MAX_PARTS = 8_000
"""Characters of its distinct words that can be found by a part of them."""
_LONGEST_WORD = 200
_BATCH_ROWS = 50
_BATCH_CHARS = 200_000
"""Indexed in one transaction: a few milliseconds."""
_REPEATS = "recall"
"""The tool that quotes stored messages: only the originals are found."""
_WORD = re.compile(r"\S+")


def index_some(db: Database, sessions: Sequence[str] = ()) -> bool:
    """Indexes some of the newest messages, or of those of `sessions`. False if none of them is left."""
    if sessions:
        found = db.execute(sql.LIST_UNINDEXED_OF_SESSIONS, sessions=json_text(sessions), many=_BATCH_ROWS)
    else:
        found = db.execute(sql.LIST_UNINDEXED, many=_BATCH_ROWS)
    rows = found.all()
    texts = indexed_texts(db, [row.number for row in take_up_to(rows, _BATCH_CHARS)])
    if texts:
        with db.transaction():
            numbers = json_text([each.number for each in texts])
            taken = set(db.execute(sql.DEQUEUE_MESSAGES, numbers=numbers).scalars())
            if mine := [each for each in texts if each.number in taken]:  # other processes took the rest
                db.full_text.add(mine)
    return bool(rows)


def indexed_texts(db: Database, numbers: Sequence[int]) -> list[IndexedText]:
    """Of these messages; computed before the transaction, so that others do not wait."""
    if not numbers:
        return []
    rows = db.execute(sql.LIST_MESSAGES_BY_NUMBER, numbers=json_text(numbers))
    return [_indexed(row) for row in rows]


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


def _indexed(row: MessageRow) -> IndexedText:
    body = searchable(message_from_row(row))
    return IndexedText(row.number, body, parts_field(body))


def take_up_to(rows: Sequence[MessageSizeRow], most: int) -> Sequence[MessageSizeRow]:
    """The first of them, at least one, up to so many characters."""
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
