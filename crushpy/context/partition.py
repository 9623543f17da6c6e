"""Splits a session's messages at a boundary: head, middle, tail. Nothing lost, nothing twice."""

from collections.abc import Callable, Sequence

from crushpy.messages import Data, Message

Size = Callable[[Message], int]
LARGE_UNIT = 1.5
"""A last unit above this many times the tail's budget is carried with its largest results cut."""


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


def units(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Whole units: a user's message, or an assistant's with all its tool results."""
    found: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and found:
            found[-1].append(message)
        else:
            found.append([message])
    return [tuple(unit) for unit in found]


def tail_budget(keep_recent_tokens: int, window: int, own_tokens: int) -> int:
    """How much may be carried verbatim: at most a fifth of the window and half of the session itself."""
    return max(0, min(keep_recent_tokens, window // 5, own_tokens // 2))


def partition(history: Sequence[Message], *, has_seed: bool, keep: int, size: Size) -> Parts:
    """Head: the seed, where there is one. Tail: the latest whole units within `keep`, at least one."""
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
    return Parts(head, middle, tail, len(taken) == 1 and used > LARGE_UNIT * keep)
