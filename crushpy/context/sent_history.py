"""A session's messages as requests show them, kept while they only grow.

Each step of a turn adds a few messages to thousands. What was made of the thousands is kept: it holds while
the messages begin with the very same ones and are shown in the same way. A cut, an undo, a boundary or
another model makes another beginning, and all is made anew.
"""

from collections.abc import Callable, Sequence

from crushpy.context.history import is_void, well_formed
from crushpy.core.messages import Message

Show = Callable[[Sequence[Message]], Sequence[Message]]


class SentHistory:
    """`update` it, then read `shown` and `valid`."""

    def __init__(self) -> None:
        self._way: object = None
        self._taken: tuple[Message, ...] = ()
        self._shown: list[Message] = []
        self._all: tuple[Message, ...] = ()
        self._made: tuple[Message, ...] | None = None
        self._settled = 0
        """How many of `_shown` are in `_valid`: all before a reply by which every call was answered."""
        self._valid: list[Message] = []

    def update(self, messages: tuple[Message, ...], way: object, show: Show) -> None:
        """`show` is how messages are shown, each for itself; `way` is equal as long as that is the same."""
        if way == self._way and messages is self._taken:
            return
        known = len(self._taken)
        if way != self._way or messages[:known] != self._taken:
            known, self._way = 0, way
            self._shown, self._settled, self._valid = [], 0, []
        self._shown += show(messages[known:])
        self._taken = messages
        self._all = tuple(self._shown)
        self._made = None

    @property
    def shown(self) -> tuple[Message, ...]:
        """The same object until the next update that changes something."""
        return self._all

    @property
    def valid(self) -> tuple[Message, ...]:
        """What is shown, as every provider accepts it."""
        if self._made is None:
            self._made = self._make_valid()
        return self._made

    def _make_valid(self) -> tuple[Message, ...]:
        rest = self._shown[self._settled :]
        settled = _answered_before_a_reply(rest)
        if settled and (made := self._after_reply(rest[:settled])):
            self._valid += made
            self._settled += settled
            rest = rest[settled:]
        return (*self._valid, *self._after_reply(rest)) if rest else tuple(self._valid)

    def _after_reply(self, messages: Sequence[Message]) -> Sequence[Message]:
        return well_formed(messages, begun=bool(self._valid))


def _answered_before_a_reply(messages: Sequence[Message]) -> int:
    """The place of the last reply before which no call waits for its result; 0 where there is none.

    What comes from there on has no bearing on what was before.
    """
    place, waiting = 0, set[str]()
    for number, message in enumerate(messages):
        if message.role == "assistant":
            if not waiting and not is_void(message):
                place = number
            waiting.update([call.id for call in message.calls])
        elif message.role == "tool" and (result := message.result) is not None:
            waiting.discard(result.call_id)
    return place
