"""Keeps signed thinking valid for models that bind it to everything before it.

Such a model accepts a thinking block only if the system prompt, the tools and all messages before the block
are those of the request that produced it. The digest of that prefix is stored with each block. A block whose
prefix has changed, after a boundary or an edit, is not sent: the server would refuse the request.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import msgspec

from crushpy.core.messages import BOUND_PREFIX, Json, Message, SentStatus, Thinking
from crushpy.llm.opaque_parts import accepts_signed_parts, opaque_blocks
from crushpy.llm.protocol import Request
from crushpy.util.lazy_pattern import lazy_pattern
from crushpy.util.prefix_cache import PrefixCache

TOOL_SEARCH_KINDS = frozenset({"server_tool_use", "tool_search_tool_result"})
"""Blocks of the server's tool search, which are sent back but not signed."""
COMPACTION = "compaction"
"""The type of a signed summary."""
MAX_HISTORIES = 4
"""Histories whose digests are cached: the conversation's, and those of sub-agents."""
_NAME = lazy_pattern(r"claude-(?:([a-z]{1,20})-)?(?:v?(\d+)(?:[-.](\d{1,2}))?(?!\d))?")
_FIRST_BINDING = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}


def binds_thinking(model: str) -> bool:
    """Whether a Claude model accepts thinking only after an unchanged prefix. Unknown names count as new."""
    found = _NAME.search(model)
    if found is None or "instant" in model:
        return False
    family, major, minor = found[1], found[2], found[3]
    if major is None:
        return True
    version = (int(major), int(minor or 0))
    if family is None:  # claude-3-5-sonnet, claude-2.1
        return version >= (5, 5)
    return version >= _FIRST_BINDING.get(family, (0, 0))


class _Chain(msgspec.Struct):
    """The messages as they are sent so far, and the digest of what they and the statuses say."""

    digest: bytes = b""
    sent: list[Message] = []
    dropped: int = 0


def _new_cache(model: str, first_message: str) -> PrefixCache[Message, _Chain]:
    return PrefixCache(_Chain)


class BoundRequest(msgspec.Struct, frozen=True):
    """A request without the thinking that its prefix no longer fits."""

    request: Request
    prefix: str
    """The digest of all that precedes the reply."""
    replaced: str
    """The digests of the request's beginning and of its messages, for a summary that replaces them."""
    dropped: int
    """Replies whose thinking is left out."""


class ThinkingBinding:
    """The digests of one provider's histories."""

    def __init__(self) -> None:
        self._cache_of = lru_cache(MAX_HISTORIES)(_new_cache)
        self._without_thinking: dict[str, Message] = {}
        self._refused: set[str] = set()

    def bind(self, request: Request) -> BoundRequest:
        """The request with the thinking that fits its prefix."""
        messages = request.messages
        if not messages:
            return BoundRequest(request, "", "", 0)
        tools = (*request.tools, *request.deferred)
        start = _digest(b"", (request.system, [msgspec.structs.asdict(tool) for tool in tools]))
        statuses = {status.message_id: status for status in request.statuses}
        stable = max(
            (index + 1 for index, message in enumerate(messages) if message.role == "assistant"), default=0
        )
        chain = self._chain(request, start, statuses, stable)
        sent = (*chain.sent, *messages[stable:])
        digest = chain.digest or start
        for message in messages[stable:]:
            digest = _digest(digest, (message.role, message.parts))
        replaced = f"{start.hex()} {digest.hex()} {messages[-1].role}"
        digest = _digest(digest, (request.status, request.tool_changes))
        bound = msgspec.structs.replace(request, messages=sent) if chain.dropped else request
        return BoundRequest(bound, digest.hex(), replaced, chain.dropped)

    def refuse(self, request: Request) -> None:
        """The server refused the thinking of these replies: it is not sent again."""
        self._refused |= {message.id for message in request.messages if _signed(message)}

    def _chain(
        self, request: Request, start: bytes, statuses: Mapping[str, SentStatus], stable: int
    ) -> _Chain:
        """The digest of the messages up to the last reply, most of it cached."""
        cache = self._cache_of(request.model, request.messages[0].id)
        seen = (start, request.return_thinking, len(self._refused), request.status_placement)
        added = cache.advance(request.messages[:stable], seen)
        chain = cache.state
        previous = request.messages[stable - len(added) - 1] if stable > len(added) else None
        for message in added:
            if signed := signed_summary_of(message):
                chain.sent.append(message)
                chain.digest = _replaced_digest(signed, start, request.messages) or _digest(start, (signed,))
                previous = None
                continue
            if message.role == "assistant" and (previous is None or previous.role != "assistant"):
                status = statuses.get(previous.id) if previous is not None else None
                changes = status if status and (status.added or status.removed) else None
                chain.digest = _digest(chain.digest or start, (status.text if status else "", changes))
            chain.sent.append(self._sent(message, request, chain))
            chain.digest = _digest(chain.digest or start, (message.role, chain.sent[-1].parts))
            previous = message
        return chain

    def _sent(self, message: Message, request: Request, chain: _Chain) -> Message:
        """The message, without its thinking if that does not fit."""
        if message.role != "assistant" or not _signed(message) or not accepts_signed_parts(message, request):
            return message
        blocks = [block for part in message.parts if isinstance(part, Thinking) for block in part.opaque]
        bound = [block for block in blocks if block.get("type") not in TOOL_SEARCH_KINDS]
        fits = all(block.get(BOUND_PREFIX) == chain.digest.hex() for block in bound)
        if fits and message.id not in self._refused:
            return message
        chain.dropped += 1
        if message.id not in self._without_thinking:
            parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
            self._without_thinking[message.id] = msgspec.structs.replace(message, parts=parts)
        return self._without_thinking[message.id]


def signed_summary_of(message: Message) -> Json | None:
    """The block of a message that stands for what a summary replaces."""
    return next(iter(opaque_blocks(message, frozenset({COMPACTION}))), None)


def _replaced_digest(signed: Json, start: bytes, messages: Sequence[Message]) -> bytes:
    """The digest of what a summary replaces; empty if the request begins in another way, or if the last of
    those messages was merged with the first one after them."""
    beginning, digest, last = (*str(signed.get(BOUND_PREFIX, "")).split(), "", "", "")[:3]
    is_merged = last != "assistant" and len(messages) > 1 and messages[1].role != "assistant"
    return bytes.fromhex(digest) if beginning == start.hex() and not is_merged else b""


def _signed(message: Message) -> bool:
    return any(isinstance(part, Thinking) and part.opaque for part in message.parts)


def _digest(before: bytes, value: Sequence[object]) -> bytes:
    return sha256(before + msgspec.msgpack.encode(value)).digest()
