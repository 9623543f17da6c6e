"""Converts stored messages into a history that every provider accepts. Pure."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from crushpy.context.partition import asked_at
from crushpy.context.render import seed_text
from crushpy.context.tags import element, safe
from crushpy.core.messages import Message, Note, Part, Seed, Text, ToolResult
from crushpy.core.own_tags import OWN_TAGS
from crushpy.util.prefix_cache import PrefixCache

INTERRUPTED = (
    "Interrupted: this call had started when crushpy stopped. Its effects are unknown; "
    "check before repeating it."
)
_TAGS = {"user": set(OWN_TAGS) - {"report"}, "assistant": {"context_status"}, "tool": OWN_TAGS}
"""Tags that are escaped in the text of each role. Prompts of tasks contain reports; a model's own words are
sent back as they were."""
NOT_RUN = "Not run: crushpy stopped before this call started."


def missing_results(messages: Sequence[Message], begun: Iterable[str]) -> list[ToolResult]:
    """What to add to a stored history so that every call has a result.

    `begun` are the ids of calls whose intent was stored: their effects are unknown.
    """
    started = set(begun)
    found: list[ToolResult] = []
    for message, answers in _units(messages):
        for call in message.calls:
            if call.id not in answers:
                text = INTERRUPTED if call.id in started else NOT_RUN
                found.append(ToolResult(call.id, call.name, text, is_error=True))
    return found


def well_formed(messages: Sequence[Message], *, begun: bool = False) -> tuple[Message, ...]:
    """The same history, valid for every provider.

    The first message is a user's; every call has exactly one result, directly after it and in the order of
    the calls, and what the user said between the two comes after them; neighbouring user messages are one;
    messages that are empty or contain only thinking are left out. `begun`: other messages precede these,
    which start with a reply.
    """
    valid: list[Message] = []
    for message, answers in _units(messages):
        if is_void(message):
            continue
        message = _escaped(message)  # noqa: PLW2901
        if message.role == "user":
            if valid and valid[-1].role == "user":
                valid[-1] = msgspec.structs.replace(valid[-1], parts=(*valid[-1].parts, *message.parts))
            else:
                valid.append(message)
            continue
        if not valid and not begun:
            valid.append(
                Message(
                    id=f"{message.id}-before", role="user", parts=(Text("(The conversation continues.)"),)
                )
            )
        valid.append(message)
        for call in message.calls:
            if call.id not in answers:
                missing = ToolResult(call.id, call.name, NOT_RUN, is_error=True)
                answers[call.id] = Message(id=f"{message.id}-{call.id}", role="tool", parts=(missing,))
            valid.append(_escaped(answers[call.id]))
    return tuple(valid)


def is_void(message: Message) -> bool:
    """Whether it is empty, or a reply without text and calls: of no use to a model."""
    thought = message.role == "assistant" and not message.calls and not message.says_something
    return thought or not message.parts


def _escaped(message: Message) -> Message:
    """Our own kinds of part as text, which every provider accepts; our tags in text of others are escaped."""
    parts = tuple([_as_sent(part, message.role) for part in message.parts])
    return msgspec.structs.replace(message, parts=parts) if parts != message.parts else message


def _as_sent(part: Part, role: str) -> Part:
    match part:
        case Seed():
            return Text(seed_text(part))
        case Note():
            return Text(element("note", part.text))
        case Text(text) if (shown := safe(text, _TAGS[role])) != text:
            return msgspec.structs.replace(part, text=shown)
        case ToolResult(text=text) if (shown := safe(text)) != text:
            return msgspec.structs.replace(part, text=shown)
        case _:
            return part


def _units(messages: Sequence[Message]) -> Iterable[tuple[Message, dict[str, Message]]]:
    """Each message that is not a tool message, with the results of its calls by call id, in any position."""
    answers: dict[int, dict[str, Message]] = {}
    for place, asked in asked_at(messages).items():
        if (result := messages[place].result) is not None:
            answers.setdefault(asked, {})[result.call_id] = messages[place]
    for place, message in enumerate(messages):
        if message.role != "tool":
            yield message, answers.get(place, {})


Show = Callable[[Sequence[Message]], Sequence[Message]]


class _ShownHistory:
    """The converted form of the messages seen so far."""

    def __init__(self) -> None:
        self.shown: list[Message] = []
        self.settled = 0
        """How many of `shown` are in `valid`: all before a reply at which every call had its result."""
        self.valid: list[Message] = []


class SentHistory:
    """A session's messages as requests show them, extended while they only grow: each step of a turn adds a
    few messages to thousands. `update` it, then read `shown` and `valid`."""

    def __init__(self) -> None:
        self._cache: PrefixCache[Message, _ShownHistory] = PrefixCache(_ShownHistory)
        self.shown: tuple[Message, ...] = ()
        """The same object until the next update that changes something."""
        self._made: tuple[Message, ...] | None = None

    def update(self, messages: tuple[Message, ...], key: object, show: Show) -> None:
        """`show` converts messages, each by itself; `key` is equal as long as it does so in the same way."""
        before = self._cache.state
        added = self._cache.advance(messages, key)
        if not added and self._cache.state is before:
            return
        self._cache.state.shown += show(added)
        self.shown = tuple(self._cache.state.shown)
        self._made = None

    @property
    def valid(self) -> tuple[Message, ...]:
        """The shown messages in the form that every provider accepts."""
        if self._made is None:
            self._made = self._make_valid(self._cache.state)
        return self._made

    def _make_valid(self, state: _ShownHistory) -> tuple[Message, ...]:
        rest = state.shown[state.settled :]
        settled = _answered_before_a_reply(rest)
        if settled and (made := well_formed(rest[:settled], begun=bool(state.valid))):
            state.valid += made
            state.settled += settled
            rest = rest[settled:]
        return (*state.valid, *(well_formed(rest, begun=bool(state.valid)) if rest else ()))


def _answered_before_a_reply(messages: Sequence[Message]) -> int:
    """The index of the last reply before which no call waits for its result; 0 if there is none.

    Messages from there on do not affect those before.
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
