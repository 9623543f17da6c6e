"""Makes valid messages of foreign pieces: merged, every call answered directly after it, ids of our own.

What is left over (an answer to no call) is counted; a call that was never answered is closed as interrupted.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Note, Part, Text, ToolCall, ToolResult
from crushpy.importers.foreign import ForeignCompaction, Heading, Item, Piece, Unmapped
from crushpy.importers.tool_displays import display_of

INTERRUPTED = (
    "Interrupted: the record this was imported from holds no result of this call. Its effects are unknown; "
    "check before repeating it."
)
ORPHAN = "result without a call"
_HELD = 1_000
"""So many messages wait for the results of the calls before them."""
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")


class ImportedMessage(Data, frozen=True):
    """A message as it will be stored."""

    message: Message
    last: str = ""
    """The last foreign piece in it; empty for what was added to close a call."""
    closes: str = ""
    """The call that an added result closes, as the other agent names it."""
    answers: str = ""
    """The call that a result answers, as the other agent names it."""


class ImportedBoundary(Data, frozen=True):
    """Where one stored session ends and the next begins."""

    id: str
    summary: str
    created_at: float
    tail: tuple[str, ...]
    """Messages that the next one carries on."""
    tokens_before: int


Normal = ImportedMessage | ImportedBoundary | Heading


def normalised(items: Iterable[Item], unmapped: Unmapped, *, stop_at: str = "") -> Iterator[Normal]:
    """`stop_at` is a piece after which no message is merged any further: it was stored so before."""
    work = _Normaliser(unmapped, stop_at)
    for item in items:
        if isinstance(item, Heading):
            yield item
        elif isinstance(item, ForeignCompaction):
            yield from work.compact(item)
        elif item.parts or item.usage:
            yield from work.add(item)
    yield from work.finish()


class _Normaliser:
    def __init__(self, unmapped: Unmapped, stop_at: str) -> None:
        self._unmapped = unmapped
        self._stop_at = stop_at
        self._current: list[Piece] = []
        """Pieces of the message that is being put together."""
        self._open: dict[str, ToolCall] = {}
        """Calls of the last reply that have no result yet, by their foreign ids."""
        self._held: list[ImportedMessage] = []
        """What was said while calls were open."""
        self._late: dict[str, ToolCall] = {}
        """Calls that were closed as interrupted."""
        self._used: set[str] = set()
        self._places: list[tuple[str, str, str]] = []
        """Of this session so far: first piece, group and our own id of every message."""
        self._moment = 0.0

    def add(self, piece: Piece) -> Iterator[Normal]:
        first = self._current[0] if self._current else None
        if piece.role == "tool":
            yield from self._flush()
            yield from self._answer(piece)
            return
        if not piece.parts and (first is None or first.role != piece.role or first.group != piece.group):
            return  # figures of a reply that is stored already
        if first is None or first.role != piece.role or not piece.group or first.group != piece.group:
            yield from self._flush()
        self._current.append(piece)
        if piece.id == self._stop_at:
            yield from self._flush()

    def compact(self, found: ForeignCompaction) -> Iterator[Normal]:
        yield from self.finish()
        starts = [at for at, place in enumerate(self._places) if found.keep_from in place[:2]]
        kept = self._places[starts[0] :] if found.keep_from and starts else []
        self._places = list(kept)
        self._moment = found.created_at or self._moment
        tail = tuple(place[2] for place in kept)
        yield ImportedBoundary(found.id, found.summary, self._moment, tail, found.tokens_before)

    def finish(self) -> Iterator[Normal]:
        yield from self._flush()
        yield from self._close()

    def _flush(self) -> Iterator[Normal]:
        pieces, self._current = self._current, []
        if not pieces:
            return
        if pieces[0].role == "user":
            message = self._message("user", tuple(part for piece in pieces for part in piece.parts), pieces)
            said = ImportedMessage(message, pieces[-1].id)
            if not self._open:
                yield self._placed(said, pieces[0])
                return
            self._held.append(said)
            if len(self._held) >= _HELD:
                yield from self._close()
            return
        yield from self._close()
        parts = tuple(part for piece in pieces for part in piece.parts)
        yield self._placed(
            ImportedMessage(self._message("assistant", self._named(parts), pieces), pieces[-1].id), pieces[0]
        )

    def _named(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts with ids and names of calls that every provider takes, no id twice."""
        found: list[Part] = []
        for part in parts:
            if not isinstance(part, ToolCall):
                found.append(part)
                continue
            if part.id in self._open:
                self._unmapped["repeated call"] += 1
                continue
            name = _NOT_ALLOWED.sub("_", part.name)[:64] or "tool"
            call = msgspec.structs.replace(part, id=self._unused(part.id), name=name)
            self._open[part.id] = call
            found.append(call)
        return tuple(found)

    def _unused(self, foreign: str) -> str:
        name = _NOT_ALLOWED.sub("_", foreign)[:60]
        if not name or name in self._used:
            name = f"call_{new_id()}"
        self._used.add(name)
        return name

    def _answer(self, piece: Piece) -> Iterator[Normal]:
        for part in piece.parts:
            if not isinstance(part, ToolResult):
                continue
            call = self._open.pop(part.call_id, None)
            if call is not None:
                result = msgspec.structs.replace(
                    part, call_id=call.id, name=call.name, display=part.display or display_of(call, part)
                )
                message = self._message("tool", (result,), [piece])
                yield self._placed(ImportedMessage(message, piece.id, answers=part.call_id), piece)
            elif part.call_id in self._late:
                late = self._late.pop(part.call_id)
                message = self._message("user", (late_note(late.name, part),), [piece])
                yield self._placed(ImportedMessage(message, piece.id), piece)
            else:
                self._unmapped[ORPHAN] += 1
        if not self._open:
            yield from self._release()

    def _close(self) -> Iterator[Normal]:
        """Every open call gets a result that says there is none."""
        for foreign, call in self._open.items():
            result = ToolResult(call.id, call.name, INTERRUPTED, is_error=True)
            message = Message(new_id(), "tool", (result,), self._moment)
            self._places.append(("", "", message.id))
            self._late[foreign] = call
            yield ImportedMessage(message, closes=foreign)
        self._open = {}
        yield from self._release()

    def _release(self) -> Iterator[Normal]:
        held, self._held = self._held, []
        for said in held:
            self._places.append((said.last, "", said.message.id))
            yield said

    def _placed(self, found: ImportedMessage, first: Piece) -> ImportedMessage:
        self._places.append((first.id, first.group, found.message.id))
        return found

    def _message(self, role: str, parts: tuple[Part, ...], pieces: list[Piece]) -> Message:
        self._moment = pieces[0].created_at or self._moment
        finish = ""
        if role == "assistant":
            finish = "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
        return Message(
            new_id(),
            role,  # pyright: ignore[reportArgumentType]
            _joined(parts),
            self._moment,
            next((piece.model for piece in pieces if piece.model), ""),
            next((piece.usage for piece in reversed(pieces) if piece.usage), None),
            finish,  # pyright: ignore[reportArgumentType]
        )


def late_note(name: str, result: ToolResult) -> Note:
    """A result that came after its call was closed."""
    word = "error" if result.is_error else "result"
    return Note(f"The {word} of the interrupted call of {name} came later:\n{result.text}")


def _joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Neighbouring texts of a reply were one text, cut into blocks."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, Text) and isinstance(found[-1], Text):
            found[-1] = Text(f"{found[-1].text}\n\n{part.text}")
        else:
            found.append(part)
    return tuple(found)
