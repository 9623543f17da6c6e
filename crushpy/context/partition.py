"""Splits a session's messages at a boundary: head, middle, tail. Nothing lost, nothing twice."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from crushpy.core.messages import Data, Message

Size = Callable[[Message], int]
LARGE_UNIT_FACTOR = 1.5
"""A last unit above this many times the tail's budget is carried with its largest results cut."""


MAX_RESULT_DISTANCE = 20
"""A result that came later than this many messages after its call does not hold what lies between."""


class Parts(Data, frozen=True):
    """head + middle + tail is the session's history, in order."""

    head: tuple[Message, ...]
    """The seed an earlier boundary left: it is replaced, not summarised again."""
    middle: tuple[Message, ...]
    """What the summary is made of."""
    tail: tuple[Message, ...]
    """Carried over as it is."""
    tail_too_large: bool = False
    """The last unit alone is far above the budget; its largest results are to be cut."""


def asked_at(messages: Sequence[Message]) -> dict[int, int]:
    """By the place of each result, the place of the message whose call it answers, whatever lies between.

    A result that nothing asked for, or a second one of the same call, has none.
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
    """Whole units: a user's message, or an assistant's with its results and what came before them."""
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
    """How much may be carried verbatim: at most a fifth of the window and half of the session itself."""
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
