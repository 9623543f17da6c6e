"""Caches the JSON of a history, so that the next request encodes only the new messages.

A history grows by a few messages from request to request. All but its end stays the same: cache marks and
the status change only the last two user turns.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock

import msgspec

from crushpy.core.messages import Json, Message
from crushpy.llm.protocol import Request
from crushpy.util.prefix_cache import PrefixCache

MAX_HISTORIES = 4
"""Cached histories: the conversation's, and those of sub-agents."""
UNCACHED_TURNS = 2
"""User turns at the end that are encoded again for each request."""

LONG_MESSAGE_CHARS = 65_536
MAX_INLINE_MESSAGES = 500
"""A request with more new messages is encoded in a thread."""

Write = Callable[[Request], Sequence[Json]]
_Cache = PrefixCache[Message, bytearray]
"""The JSON of the first messages of a history, separated by commas; it grows without being copied."""


class EncodedHistories:
    """The cached histories of one provider."""

    def __init__(self) -> None:
        self._cache_of = lru_cache(MAX_HISTORIES)(_new_cache)
        self._lock = Lock()
        """A thread may encode a large history while a sub-agent sends a request."""

    def is_slow_to_encode(self, request: Request) -> bool:
        """Whether the request has many new messages, or a very long one."""
        new = request.messages[len(self._find_cache(request)) :]
        return len(new) > MAX_INLINE_MESSAGES or any(message.length > LONG_MESSAGE_CHARS for message in new)

    def encode(
        self, request: Request, write: Write, *, write_end: Write | None = None, first: Sequence[Json] = ()
    ) -> list[msgspec.Raw]:
        """`first`, then the messages of the request, as a list that encodes to a JSON list of them.

        `write` gets the request with some of its messages, without the status. `write_end` (default: `write`)
        gets the last messages, with the status. Both write a slice that begins with a reply as they would
        write it after other messages.
        """
        messages = request.messages
        with self._lock:
            cache = self._find_cache(request)
            if len(cache) and not (cache.is_prefix_of(messages) and _is_separate(messages, len(cache))):
                cache.advance(())
            form = request.return_thinking, request.status_placement, bool(request.deferred)
            if added := cache.advance(messages[: _count_stable(messages)], form):
                part = msgspec.structs.replace(request, messages=added, status="")
                entries = _encode_entries(write(part))
                cache.state.extend(b"," + entries if cache.state and entries else entries)
            part = msgspec.structs.replace(request, messages=messages[len(cache) :])
            end = _encode_entries((write_end or write)(part))
            entries = b",".join(part for part in (_encode_entries(first), cache.state, end) if part)
            return [msgspec.Raw(entries)] if entries else []

    def _find_cache(self, request: Request) -> _Cache:
        """An empty one for a short request, such as that for a title: it takes the place of no other."""
        first = request.messages[0].id if _count_stable(request.messages) else ""
        return self._cache_of(request.model, first) if first else _Cache(bytearray)


def _new_cache(model: str, first_message: str) -> _Cache:
    return _Cache(bytearray)


def _encode_entries(entries: Sequence[Json]) -> bytes:
    return b",".join(map(msgspec.json.encode, entries))


def _count_stable(messages: Sequence[Message]) -> int:
    """The number of messages at the beginning that stay the same in later requests: all before a reply that
    is followed by two user turns."""
    turns, in_turn = 0, False
    for index in range(len(messages) - 1, 0, -1):
        message = messages[index]
        if message.role != "assistant":
            turns += not in_turn
            in_turn = True
        elif turns >= UNCACHED_TURNS and _is_separate(messages, index):
            return index
        elif _is_sent(message):
            in_turn = False
    return 0


def _is_separate(messages: Sequence[Message], index: int) -> bool:
    """Whether a reply begins here that no format merges with the message before it."""
    message = messages[index]
    return message.role == "assistant" and messages[index - 1].role != "assistant" and _is_sent(message)


def _is_sent(reply: Message) -> bool:
    """An empty reply may be left out, and the messages around it are then merged."""
    return bool(reply.calls or reply.says_something)
