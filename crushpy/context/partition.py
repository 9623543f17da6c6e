"""Splits a session's messages at a boundary into head, middle and tail."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from crushpy.core.messages import Data, Message

Size = Callable[[Message], int]
LARGE_UNIT_FACTOR = 1.5
"""A last unit above this many times the tail's budget is carried with its largest results shortened."""


MAX_RESULT_DISTANCE = 20
"""A result that follows its call by more messages than this does not join them into one unit."""


class Parts(Data, frozen=True):
    """head + middle + tail is the session's history, in order."""

    head: tuple[Message, ...]
    """The seed of this session: it is replaced, not summarised again."""
    middle: tuple[Message, ...]
    """What is summarised."""
    tail: tuple[Message, ...]
    """Carried verbatim."""
    tail_too_large: bool = False
    """The last unit alone is far above the budget; its largest results are to be shortened."""


def asked_at(messages: Sequence[Message]) -> dict[int, int]:
    """Maps the index of each result to the index of the message with its call.

    Results without a call, and second results of the same call, are left out.
    """
    waiting: dict[str, int] = {}
    found: dict[int, int] = {}
    for place, message in enumerate(messages):
        if message.role == "assistant":
            waiting.update([(call.id, place) for call in message.calls])
        elif (result := message.result) is not None and result.call_id in waiting:
            found[place] = waiting.pop(result.call_id)
    return found


def units(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The units: a user's message, or an assistant's message up to the last of its results."""
    asked = asked_at(messages)
    starts: list[int] = []
    for place, message in enumerate(messages):
        if message.role != "tool" or not starts:
            starts.append(place)
            continue
        call = asked.get(place, place)
        while starts[-1] > call and place - call <= MAX_RESULT_DISTANCE:
            starts.pop()
    return [tuple(messages[start:end]) for start, end in pairwise([*starts, len(messages)])]


def tail_budget(keep_recent_tokens: int, window: int, own_tokens: int) -> int:
    """The budget of the tail: at most a fifth of the window and half of the session itself."""
    return max(0, min(keep_recent_tokens, window // 5, own_tokens // 2))


def partition(history: Sequence[Message], *, has_seed: bool, keep: int, size: Size) -> Parts:
    """Head: the seed, if there is one. Tail: the latest whole units within `keep`, at least one."""
    head = tuple(history[:1]) if has_seed else ()
    rest = units(history[len(head) :])
    taken: list[tuple[Message, ...]] = []
    used = 0
    for unit in reversed(rest):
        weight = sum(size(message) for message in unit)
        if taken and used + weight > keep:
            break
        taken.append(unit)
        used += weight
    taken.reverse()
    tail = tuple(message for unit in taken for message in unit)
    middle = tuple(message for unit in rest[: len(rest) - len(taken)] for message in unit)
    return Parts(head, middle, tail, len(taken) == 1 and used > LARGE_UNIT_FACTOR * keep)
