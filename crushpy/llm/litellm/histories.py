"""Histories at both ends of the pipe: the app sends what is new of one, litellm's process keeps the rest.

A history grows by a few messages from request to request. It has a number at both ends, and a new one takes
the number of the one that was not asked about for the longest time: neither end keeps more than a few.
"""

from bisect import bisect_left
from collections import OrderedDict

import msgspec

from crushpy.core.messages import Message
from crushpy.llm.litellm.frames import Ask, ProviderAccess
from crushpy.llm.protocol import Request

MOST_KEPT = 4
"""Histories: the conversation's, and those of sub-agents beside it."""

Key = tuple[int, str, str]
"""Provider, model and first message."""


class SentHistories:
    """The app's end: what one process of litellm has. A new process has nothing."""

    def __init__(self) -> None:
        self._sent: OrderedDict[Key, tuple[int, tuple[Message, ...]]] = OrderedDict()

    def ask(self, call: int, provider: int, access: ProviderAccess, request: Request) -> Ask:
        """A request without the messages that the process has."""
        messages = request.messages
        if not messages:
            return Ask(call, provider, access, request)
        key = (provider, request.model, messages[0].id)
        number, sent = self._sent.pop(key, (0, ()))
        kept = _beginning(sent, messages)
        self._sent[key] = (number or self._free_number(), messages)
        rest = msgspec.structs.replace(request, messages=messages[kept:])
        return Ask(call, provider, access, rest, self._sent[key][0], kept)

    def ask_whole(self, call: int, provider: int, access: ProviderAccess, request: Request) -> Ask:
        """The same request for a process that does not know its beginning."""
        self._sent.pop((provider, request.model, request.messages[0].id), None)
        return self.ask(call, provider, access, request)

    def let_go(self, provider: int) -> None:
        for key in [key for key in self._sent if key[0] == provider]:
            del self._sent[key]

    def _free_number(self) -> int:
        taken = {number for number, _ in self._sent.values()}
        if len(taken) < MOST_KEPT:
            return min(set(range(1, MOST_KEPT + 1)) - taken)
        return self._sent.popitem(last=False)[1][0]


class KeptHistories:
    """The process's end."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, tuple[Message, ...]]] = {}

    def whole(self, ask: Ask) -> Request | None:
        """The request with all of its messages; None where their beginning is not known here."""
        if not ask.history:
            return ask.request
        provider, before = self._kept.get(ask.history, (ask.provider, ()))
        if provider != ask.provider or len(before) < ask.kept:
            before = ()
            if ask.kept:
                self._kept.pop(ask.history, None)
                return None
        messages = (*before[: ask.kept], *ask.request.messages)
        self._kept[ask.history] = (ask.provider, messages)
        return msgspec.structs.replace(ask.request, messages=messages)

    def let_go(self, provider: int) -> None:
        for number in [number for number, (whose, _) in self._kept.items() if whose == provider]:
            del self._kept[number]


def _beginning(sent: tuple[Message, ...], messages: tuple[Message, ...]) -> int:
    """How many messages at the beginning are the same. Compared by identity, mostly, at the speed of C."""
    if messages[: len(sent)] == sent:
        return len(sent)
    most = min(len(sent), len(messages))
    return bisect_left(range(1, most + 1), True, key=lambda many: messages[:many] != sent[:many])
