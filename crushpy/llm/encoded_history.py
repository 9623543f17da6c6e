"""Caches the JSON of a history, so that the next request encodes only what is new.

A history grows by a few messages from request to request. All but its end looks the same in each of them:
cache marks and the status touch the last two turns of the user's side alone.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

import msgspec

from crushpy.core.messages import Json, Message
from crushpy.util.prefix_cache import PrefixCache

MAX_HISTORIES = 4
"""How many are kept: the conversation's, and those of sub-agents beside it."""
TOUCHED = 2
"""Turns of the user's side at the end that are encoded again each time."""

LONG_MESSAGE_CHARS = 65_536
WRITTEN_AT_ONCE = 500
"""Messages that are new to a request: more of them are written in a thread."""

Write = Callable[[tuple[Message, ...]], Sequence[Json]]


class Written(tuple[bytes | memoryview, ...]):
    """JSON in pieces, for `encoded_body`."""

    __slots__ = ()


class _Encoded:
    """The JSON of the first messages of a history, each entry with a comma before it."""

    def __init__(self) -> None:
        self.data = b""


class EncodedHistories:
    """Those of one provider."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], PrefixCache[Message, _Encoded]] = OrderedDict()
        self._writing = Lock()
        """Of a large history a thread takes care, and a sub-agent may ask meanwhile."""

    def has_much_to_write(self, model: str, messages: tuple[Message, ...]) -> bool:
        """Whether the next request has to write many of these messages, or a very long one."""
        known = self._known.get((model, messages[0].id)) if messages else None
        new = messages[len(known) if known is not None else 0 :]
        return len(new) > WRITTEN_AT_ONCE or any(message.length > LONG_MESSAGE_CHARS for message in new)

    def written(
        self,
        model: str,
        messages: tuple[Message, ...],
        form: object,
        *,
        first: Sequence[Json] = (),
        plain: Write,
        end: Write,
    ) -> Written:
        """A JSON list: `first`, the messages, and what `end` adds to the last of them.

        `plain` writes messages without marks and status, `end` with them. Both write what begins with a reply
        as they would after other messages. `form` is equal as long as they write in the same way.
        """
        with self._writing:
            cache = self._cached(model, messages)
            if added := cache.advance(messages[: _settled(messages)], form):
                cache.state.data += b"".join([_entry(one) for one in plain(added)])
                self._keep((model, messages[0].id), cache)
            last = end(messages[len(cache) :])
            before, after = b"".join(map(_entry, first)), b"".join(map(_entry, last))
            begin, *more = [piece for piece in (before, cache.state.data, after) if piece] or [b","]
            return Written((b"[", memoryview(begin)[1:], *more, b"]"))

    def _cached(self, model: str, messages: tuple[Message, ...]) -> PrefixCache[Message, _Encoded]:
        """The cache to extend; a new one if `messages` does not continue what is known."""
        known = self._known.get((model, messages[0].id)) if messages else None
        if known is not None and known.is_prefix_of(messages) and _stands_apart(messages, len(known)):
            return known
        return PrefixCache[Message, _Encoded](_Encoded)

    def _keep(self, key: tuple[str, str], cache: PrefixCache[Message, _Encoded]) -> None:
        self._known[key] = cache
        self._known.move_to_end(key)
        if len(self._known) > MAX_HISTORIES:
            self._known.popitem(last=False)


def encoded_body(body: Json) -> list[bytes | memoryview]:
    """A request as JSON, in pieces: what is written already is not copied, however large it is."""
    pieces: list[bytes | memoryview] = []
    for name, value in body.items():
        pieces += [b"," if pieces else b"{", msgspec.json.encode(name), b":"]
        pieces += value if isinstance(value, Written) else [msgspec.json.encode(value)]
    return [*pieces, b"}" if pieces else b"{}"]


def _entry(entry: Json) -> bytes:
    return b"," + msgspec.json.encode(entry)


def _settled(messages: Sequence[Message]) -> int:
    """How many messages at the beginning look the same in later requests: all before a reply that two turns
    of the user's side follow."""
    turns, amid = 0, False
    for place in range(len(messages) - 1, 0, -1):
        message = messages[place]
        if message.role != "assistant":
            turns += not amid
            amid = True
        elif turns >= TOUCHED and _stands_apart(messages, place):
            return place
        elif _says_something(message):
            amid = False
    return 0


def _stands_apart(messages: Sequence[Message], place: int) -> bool:
    """Whether a reply begins here that no format joins with what goes before it."""
    message = messages[place]
    return (
        message.role == "assistant" and messages[place - 1].role != "assistant" and _says_something(message)
    )


def _says_something(reply: Message) -> bool:
    """Others may be left out, and what is around them is joined."""
    return bool(reply.calls or reply.says_something)
