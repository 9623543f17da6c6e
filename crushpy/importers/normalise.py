"""Builds valid messages from foreign pieces: merged, every call followed by its result, with ids of our own.

A result without a call is counted; a call without a result is closed as interrupted.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Part, Text, ToolCall, ToolResult, Usage
from crushpy.importers.foreign import ForeignCompaction, Piece, Unmapped
from crushpy.importers.tool_facts import ToolFacts

INTERRUPTED = (
    "Interrupted: the imported session has no result for this call. Its effects are unknown; check before "
    "repeating it."
)
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")


Normal = Message | ForeignCompaction | Usage
"""A usage is that of a model call that left no message."""


def normalised(items: Iterable[Piece | ForeignCompaction], unmapped: Unmapped) -> Iterator[Normal]:
    work = _Normaliser(unmapped)
    for item in items:
        if isinstance(item, ForeignCompaction):
            yield from work.compact(item)
        elif item.parts:
            work.add(item)
        elif item.usage is not None:
            yield item.usage
    yield from work.finish()


class _Step(msgspec.Struct):
    """A reply, the results of its calls, and the prompts that follow. The first step may lack a reply.

    A format may write the calls of one reply on several lines, with results or prompts between them."""

    reply: list[Piece] = []
    calls: dict[str, ToolCall] = {}
    """By their foreign ids."""
    results: dict[str, tuple[ToolResult, Piece]] = {}
    prompts: list[list[Piece]] = []


class _Normaliser:
    def __init__(self, unmapped: Unmapped) -> None:
        self._unmapped = unmapped
        self._steps = [_Step()]
        """Since the last compaction."""
        self._replies: dict[str, _Step] = {}
        """By their groups."""
        self._callers: dict[str, _Step] = {}
        """The last step with a call of that foreign id."""
        self._used: set[str] = set()
        self._places: list[tuple[str, str, str]] = []
        """First piece, group and our own id of every message of this session so far."""
        self._moment = 0.0
        self._facts = ToolFacts()

    def add(self, piece: Piece) -> None:
        step = self._steps[-1]
        if piece.role == "tool":
            for part in piece.parts:
                if isinstance(part, ToolResult):
                    self._answer(part, piece)
        elif piece.role == "assistant":
            self._reply(piece)
        elif step.prompts and piece.group and step.prompts[-1][0].group == piece.group:
            step.prompts[-1].append(piece)
        else:
            step.prompts.append([piece])

    def _reply(self, piece: Piece) -> None:
        step = self._replies.get(piece.group) if piece.group else None
        if step is None:
            self._steps.append(step := _Step())
            self._replies[piece.group] = step
        parts: list[Part] = []
        for part in piece.parts:
            if isinstance(part, ToolCall) and part.id in step.calls:
                self._unmapped["repeated call"] += 1
                continue
            if isinstance(part, ToolCall):
                step.calls[part.id], self._callers[part.id] = self._with_valid_id(part), step
            parts.append(part)
        step.reply.append(msgspec.structs.replace(piece, parts=tuple(parts)))

    def _with_valid_id(self, call: ToolCall) -> ToolCall:
        """A call with a unique id, and a name that every provider accepts."""
        own = _NOT_ALLOWED.sub("_", call.id)[:60]
        own = own if own and own not in self._used else f"call_{new_id()}"
        self._used.add(own)
        return msgspec.structs.replace(call, id=own, name=_NOT_ALLOWED.sub("_", call.name)[:64] or "tool")

    def _answer(self, result: ToolResult, piece: Piece) -> None:
        step = self._callers.get(result.call_id)
        if step is None or result.call_id in step.results:
            self._unmapped["result without a call"] += 1
        else:
            step.results[result.call_id] = (result, piece)

    def compact(self, found: ForeignCompaction) -> Iterator[Normal]:
        yield from self.finish()
        starts = [at for at, place in enumerate(self._places) if found.keep_from in place[:2]]
        self._places = self._places[starts[0] :] if found.keep_from and starts else []
        self._moment = found.created_at or self._moment
        tail = tuple(place[2] for place in self._places)
        yield msgspec.structs.replace(found, created_at=self._moment, tail=tail)

    def finish(self) -> Iterator[Normal]:
        steps, self._steps, self._replies, self._callers = self._steps, [_Step()], {}, {}
        for step in steps:
            if step.reply:
                yield self._message(step.reply, step.calls)
            for call_id, (result, piece) in step.results.items():
                call, self._moment = step.calls.pop(call_id), piece.created_at or self._moment
                answer = msgspec.structs.replace(result, call_id=call.id, name=call.name)
                yield self._tool_message(self._facts.described(call, answer), piece)
            for call in step.calls.values():
                yield self._tool_message(ToolResult(call.id, call.name, INTERRUPTED, is_error=True))
            for prompt in step.prompts:
                yield self._message(prompt, {})

    def _message(self, pieces: list[Piece], calls: dict[str, ToolCall]) -> Message:
        first = pieces[0]
        parts = _joined(part for piece in pieces for part in piece.parts)
        parts = tuple(calls[part.id] if isinstance(part, ToolCall) else part for part in parts)
        self._moment = first.created_at or self._moment
        model = next((piece.model for piece in pieces if piece.model), "")
        usage = next((piece.usage for piece in reversed(pieces) if piece.usage), None)
        finish = ("tool_calls" if calls else "stop") if first.role == "assistant" else ""
        message = Message(new_id(), first.role, parts, self._moment, model, usage, finish)
        return self._placed(message, first)

    def _tool_message(self, result: ToolResult, piece: Piece | None = None) -> Message:
        return self._placed(Message(new_id(), "tool", (result,), self._moment), piece)

    def _placed(self, message: Message, first: Piece | None = None) -> Message:
        self._places.append((first.id, first.group, message.id) if first else ("", "", message.id))
        return message


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Joins adjacent texts: the blocks of one text."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, Text) and isinstance(found[-1], Text):
            found[-1] = Text(f"{found[-1].text}\n\n{part.text}")
        else:
            found.append(part)
    return tuple(found)
