"""What editing the context would do: which messages it concerns, what it frees, what it costs in cache.

Pure: says and refuses, changes nothing. A call and its results are one unit and are dropped and brought back
together; what a session started with stays.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from crushpy.context.facts import absolute, said_in
from crushpy.context.overrides import LEVELS, SentState, apply_override, apply_overrides, sent_state
from crushpy.context.partition import Size, units
from crushpy.core.errors import UsageError
from crushpy.core.messages import (
    Data,
    Message,
    MessageOverride,
    Note,
    Overrides,
    Pin,
    Todo,
    ToolCall,
    counted,
)

EditKind = Literal["shorten", "drop", "restore"]
SUPERSEDED = "superseded"
"""In place of a message's id: every view of a file that a later one replaces."""
OUTDATED = "The summary was written before a message was dropped"
ALL = "all"
"""In place of a message's id: every message that is shortened or left out."""
_KINDS: dict[str, EditKind] = {"shorten": "shorten", "drop": "drop", "remove": "drop", "restore": "restore"}
DONE: dict[EditKind, str] = {"shorten": "shortened", "drop": "dropped", "restore": "restored"}


class ContextEdit(Data, frozen=True):
    kind: EditKind
    message_id: str
    """An id, the unique beginning of one, `superseded` (shorten) or `all` (restore)."""
    also: bool = False
    """Of a drop: the messages that repeat its text are dropped, too."""


class EditedMessage(Data, frozen=True, omit_defaults=False):
    message_id: str
    kind: EditKind
    before: int
    """Tokens in the next request, as it was."""
    after: int
    """Tokens in the next request, as it will be."""
    asked: bool
    """False if it is included because of another message of its unit."""
    state: SentState = ""
    """How requests showed it before."""


class EditEffect(Data, frozen=True, omit_defaults=False):
    """What a set of edits does to the next request."""

    messages: tuple[EditedMessage, ...]
    """In the order of the history."""
    tokens_freed: int
    """Below 0 if more is restored than is left out."""
    cache_lost: int
    """Tokens behind the first changed message: a provider's cache ends there, and they are sent again."""
    overrides: tuple[MessageOverride, ...] = ()
    """The records that make it so."""
    thoughts_lost: int = 0
    """Replies after the first changed message whose thinking their model does not accept any more."""
    repeats: tuple[str, ...] = ()
    """Messages that repeat what is dropped, also those before a compaction."""
    repeating_pins: tuple[int, ...] = ()
    """Pins that repeat it. With `also` they are removed."""
    repeating_todos: tuple[str, ...] = ()
    """Todos that repeat it. With `also` they are removed."""
    also: bool = False
    """What repeats it goes as well."""
    outdates_summary: bool = False
    """The summary that the session started with was written from one of these messages."""

    @property
    def repeated(self) -> list[tuple[str, tuple[object, ...]]]:
        """What else has the text, by kind; empty if nothing has."""
        found = ("message", self.repeats), ("pin", self.repeating_pins), ("todo", self.repeating_todos)
        return [(what, repeats) for what, repeats in found if repeats]

    @property
    def along(self) -> tuple[str, ...]:
        """Messages that were not named: a call and its results stay together."""
        return tuple(message.message_id for message in self.messages if not message.asked)


def edits_from(words: str) -> list[ContextEdit]:
    """The edits that the words after a command name."""
    kind, *names = words.split()
    also = "--also" in names
    found = [
        ContextEdit(edit, name, also) for edit in DONE if edit == kind for name in names if name != "--also"
    ]
    if not found:
        raise UsageError(
            f"{words!r} is no edit of the context.", "For example: drop MESSAGE --also, or restore all."
        )
    return found


def undoing(effect: EditEffect) -> list[ContextEdit]:
    """The edits that take others back."""
    again: dict[str, EditKind] = {"dropped": "drop", "shortened": "shorten"}
    return [
        ContextEdit(again[edited.state] if edited.kind == "restore" else "restore", edited.message_id)
        for edited in effect.messages
    ]


class OldViews(Data, frozen=True, omit_defaults=False):
    """Views of files that later calls replace: what to leave out first."""

    message_ids: tuple[str, ...] = ()
    tokens: int = 0
    """What shortening them frees."""


def _shortened(message_id: str, head: int, tail: int) -> MessageOverride:
    return MessageOverride(message_id, head, tail, kind="shorten")


def old_views(history: Sequence[Message], overrides: Overrides, *, cwd: str, size: Size) -> OldViews:
    freed = {
        view.id: size(view) - size(apply_override(view, _shortened(view.id, 0, 0)))
        for view in superseded_views(history, cwd=cwd)
        if not sent_state(overrides, view.id)
    }
    worth = {name: tokens for name, tokens in freed.items() if tokens > 0}
    return OldViews(tuple(worth), sum(worth.values()))


def thoughts_left_behind(messages: Iterable[Message]) -> str:
    """What undoing the boundary before these messages costs, as a sentence."""
    lost = sum(message.has_bound_thinking for message in messages)
    what = f"loses its {counted(lost, 'thought')} since then" if lost else "keeps its thinking"
    return f"The model {what}."


def effect_of_edits(
    history: Sequence[Message],
    overrides: Overrides,
    wanted: Sequence[ContextEdit],
    *,
    cwd: str,
    size: Size,
    earlier: Sequence[Message] = (),
    pins: Sequence[Pin] = (),
    todos: Sequence[Todo] = (),
) -> EditEffect:
    """The effect of all these edits together. `earlier` are messages before the history, of which a seed may
    quote something. Raises `UsageError` if an edit is impossible."""
    planner = _Planner(earlier, history, overrides, cwd, size)
    for edit in wanted:
        planner.add(edit)
    return msgspec.structs.replace(planner.effect(pins, todos), also=any(edit.also for edit in wanted))


class _Planner:
    def __init__(
        self, past: Sequence[Message], history: Sequence[Message], overrides: Overrides, cwd: str, size: Size
    ) -> None:
        self._history, self._before = (*past, *history), {message.id for message in past}
        first = next((message.id for message in self._history if message.role == "user"), "")
        self._kept_places = {first, *self._before}
        """Prompts in whose place a line stays, if they are dropped."""
        self._overrides = overrides
        self._cwd = cwd
        self._size: Size = lambda message: 0 if message.id in self._before else size(message)
        self._unit = {message.id: unit for unit in units(self._history) for message in unit}
        self._messages = {message.id: message for message in self._history}
        self._kind: dict[str, SentState] = {name: sent_state(overrides, name) for name in self._messages}
        self._made: dict[str, MessageOverride] = {}
        self._asked: set[str] = set()

    def add(self, edit: ContextEdit) -> None:
        if edit.kind == "shorten" and edit.message_id == SUPERSEDED:
            offered = old_views(self._history, self._overrides, cwd=self._cwd, size=self._size).message_ids
            made = [_shortened(name, 0, 0) for name in offered]
            problem = "There are no superseded views: no file was read twice, or they are shortened already."
        elif edit.kind == "restore" and edit.message_id == ALL:
            made = [
                MessageOverride(name, kind="restore")
                for name, kind in self._kind.items()
                if kind and self._overrides[name].kind != "withdraw"  # that prompt went back to the user
            ]
            problem = "There is nothing to restore: every message is sent whole."
        else:
            message = self._messages[message_named(edit.message_id, self._messages)]
            self._asked.add(message.id)
            make = {"shorten": self._shorten, "drop": self._drop, "restore": self._restore}[edit.kind]
            for override in make(message):
                self._make(override)
            for repeat in self._repeats() if edit.also else ():
                if repeat.id not in self._made:
                    self._asked.add(repeat.id)
                    for override in self._drop(repeat):
                        self._make(override)
            return
        if not made:
            raise UsageError(problem)
        for override in made:
            self._asked.add(override.message_id)
            self._make(override)

    def _shorten(self, message: Message) -> list[MessageOverride]:
        self._refuse_seed(message, "shortened")
        if self._kind[message.id] == "shortened":
            raise UsageError(f"Message {message.id} is shortened already.", "--restore shows it whole again.")
        if self._kind[message.id] == "dropped":
            raise UsageError(
                f"Message {message.id} is dropped: there is nothing to shorten.", "--restore it first."
            )
        concerned = self._unit[message.id] if message.calls else (message,)
        found = [made for part in concerned if not self._kind[part.id] and (made := self._shorter(part))]
        if not found:
            raise UsageError(f"Message {message.id} is too short to be shortened.", "--drop leaves it out.")
        return found

    def _shorter(self, message: Message) -> MessageOverride | None:
        """An override that makes this message smaller; None if none does."""
        text = message.result.text if message.result else message.text
        for least, head, tail in LEVELS:
            override = _shortened(message.id, head, tail)
            if len(text) > least or message.images:
                smaller = self._size(apply_override(message, override)) < self._size(message)
                return override if smaller else None
        return None

    def _drop(self, message: Message) -> list[MessageOverride]:
        for member in self._unit[message.id]:
            self._refuse_seed(member, "dropped")
        if self._kind[message.id] == "dropped":
            raise UsageError(f"Message {message.id} is dropped already.", "--restore brings it back.")
        derived = self._derived(message)
        kept = self._kept_places.union(note.id for note in derived)  # a rule that a note ended stays so
        return [
            MessageOverride(part.id, kind="remove" if part.role == "user" and part.id in kept else "drop")
            for part in (*self._unit[message.id], *derived)
        ]

    def _derived(self, message: Message) -> list[Message]:
        """The notes that code made of what a message says."""
        return [note for note in self._history if is_derived(note, message)]

    def _repeats(self) -> list[Message]:
        """The messages that repeat what is dropped: they are sent, or have facts in the evidence."""
        pieces = self._dropped_pieces()
        sent = (
            message
            for message in self._history
            if not (message.seed or message.id in self._made) and self._kind[message.id] != "dropped"
        )
        return [message for message in sent if pieces and is_repeated(pieces, said_in(message, notes=True))]

    def _dropped_pieces(self) -> set[str]:
        gone = [name for name, override in self._made.items() if _KINDS[override.kind] == "drop"]
        return {piece for name in gone for piece in telling_pieces(self._messages[name])}

    def _restore(self, message: Message) -> list[MessageOverride]:
        kind = self._kind[message.id]
        unit = (*self._unit[message.id], *self._derived(message))
        concerned = [
            part for part in unit if self._kind[part.id] and (kind != "shortened" or part is message)
        ]
        if not concerned or (not kind and not message.calls):
            raise UsageError(
                f"There is nothing to restore: message {message.id} is sent whole.",
                "`crushpy sessions context ID` marks what is shortened or dropped.",
            )
        return [MessageOverride(message.id, kind="restore") for message in concerned]

    def _make(self, override: MessageOverride) -> None:
        before = self._made.get(override.message_id, override)
        kinds = DONE[_KINDS[before.kind]], DONE[_KINDS[override.kind]]
        if kinds[0] != kinds[1]:
            raise UsageError(
                f"{override.message_id} cannot be {kinds[0]} and {kinds[1]} at once.",
                "A call and its results are dropped and restored together.",
            )
        self._made[override.message_id] = override

    def _refuse_seed(self, message: Message, what: str) -> None:
        if message.seed is not None:
            raise UsageError(
                f"Message {message.id} cannot be {what}: it is the seed, the summary and the evidence that "
                "this session started with.",
                "`crushpy sessions undo-compaction ID` undoes the compaction.",
            )

    def effect(self, pins: Sequence[Pin], todos: Sequence[Todo]) -> EditEffect:
        gone = self._dropped_pieces()
        after = {**self._overrides, **self._made}
        now, then = self._sizes(self._overrides), self._sizes(after)
        changed = [
            EditedMessage(
                message.id,
                _KINDS[self._made[message.id].kind],
                now[message.id],
                then[message.id],
                message.id in self._asked,
                self._kind[message.id],
            )
            for message in self._history
            if message.id in self._made
        ]
        places = [place for place, message in enumerate(self._history) if message.id in self._made]
        first = min(places, default=len(self._history))
        return EditEffect(
            tuple(changed),
            sum(change.before - change.after for change in changed),
            sum(then[message.id] for message in self._history[first:]),
            tuple(self._made.values()),
            thoughts_lost=sum(message.has_bound_thinking for message in self._history[first:]),
            repeats=tuple(message.id for message in self._repeats()),
            repeating_pins=tuple(pin.number for pin in pins if is_repeated(gone, f"{pin.source} {pin.text}")),
            repeating_todos=tuple(todo.text for todo in todos if is_repeated(gone, todo.text)),
            outdates_summary=any(
                made.kind != "restore" for made in changed if made.message_id in self._before
            ),
        )

    def _sizes(self, overrides: Overrides) -> dict[str, int]:
        """Tokens of each message as a request shows it; 0 if it does not."""
        shown = {message.id: self._size(message) for message in apply_overrides(self._history, overrides)}
        return {message.id: shown.get(message.id, 0) for message in self._history}


MIN_LINE_CHARS, MIN_NAME_CHARS, MIN_WHOLE_CHARS = 20, 8, 4
"""Shorter lines, shorter words with a digit, and shorter messages occur by chance."""
COMMON_WORDS = """a again all and check commit continue do done fine fix go good great hello it more next no
now ok okay on please plan proceed push retry run start stop sure test tests thanks that the to try yes"""
"""A short message of nothing else is repeated by chance."""


def telling_pieces(message: Message) -> list[str]:
    """What shows that another text repeats this message: its id, its longer lines, names such as keys, and
    all words of a short prompt or reply. Of notes only files that the user attached count."""
    attached = [note.text.partition("\n")[2] for note in _notes(message) if note.origin == "file"]
    said = re.sub(r"(?m)^ *\d+\t", "", "\n".join((said_in(message), *attached)))
    lines = [line.strip() for line in said.splitlines()]
    names = [word.strip(".,;:'\"()`") for line in lines for word in line.split()]
    words = "" if message.calls else _words(message.text)
    is_common = len(words.strip()) < MIN_WHOLE_CHARS or set(words.split()) <= set(COMMON_WORDS.split())
    return [
        *(message.id, *([] if is_common else [words])),
        *(line for line in lines if len(line) >= MIN_LINE_CHARS),
        *(name for name in names if len(name) >= MIN_NAME_CHARS and any(map(str.isdigit, name))),
    ]


def is_repeated(pieces: Iterable[str], text: str) -> bool:
    searched = f"{text}\n{_words(text)}"
    return any(piece in searched for piece in pieces)


def _words(text: str) -> str:
    """The words of a text, each between spaces."""
    return " ".join(("", *re.findall(r"\w+", text.casefold()), ""))


def _notes(message: Message) -> list[Note]:
    return [part for part in message.parts if isinstance(part, Note)]


def is_derived(note: Message, message: Message) -> bool:
    """Whether code made this note of what a prompt says: it has all of it, or ends a rule in it."""
    said = message.text.strip() if message.role == "user" else ""
    for part in _notes(note) if said else ():
        told = re.split(r":\s", part.text, maxsplit=1)[-1]
        is_ended = part.about == "rule_withdrawn" and set(told.split()) <= set(said.split())
        if is_ended or (not part.origin and told.startswith(f"{said}\n")):
            return True
    return False


def message_named(name: str, ids: Iterable[str]) -> str:
    """The id that `name` stands for: the whole id or a unique prefix."""
    wanted = name.strip()
    found = sorted(id_ for id_ in ids if id_.startswith(wanted)) if wanted else []
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if not found:
        raise UsageError(
            f"There is no message {name!r} in what this session sends.",
            "`crushpy sessions context ID` lists the messages with their ids.",
        )
    raise UsageError(f"Several messages start with {name!r}: {', '.join(found[:5])}.", "Give more of the id.")


def offer_words(views: OldViews) -> str:
    """What is offered to be shortened first, for people: 12 old views, 31k tokens."""
    tokens = f"{views.tokens / 1000:.0f}k" if views.tokens >= 10_000 else f"{views.tokens:,}"
    return f"{counted(len(views.message_ids), 'old view')}, {tokens} tokens"


def effect_words(effect: EditEffect) -> str:
    done = Counter(DONE[message.kind] for message in effect.messages)
    what = ", ".join(f"{counted(number, 'message')} {word}" for word, number in done.items())
    sign = "freed" if effect.tokens_freed >= 0 else "more"
    along = f"; {', '.join(effect.along)} along: a call and its results stay together" if effect.along else ""
    costs = f", the {effect.cache_lost:,} tokens after it are sent uncached once" if effect.cache_lost else ""
    if effect.thoughts_lost:
        costs += f", and the model loses its {counted(effect.thoughts_lost, 'thought')} after it"
    words = f"{what}{along}: {abs(effect.tokens_freed):,} tokens {sign}{costs}"
    for what, repeats in effect.repeated:
        repeat = "repeats" if len(repeats) == 1 else "repeat"
        repeat = f"that {repeat} the text removed" if effect.also else f"{repeat} the text"
        words += f". {counted(len(repeats), what)} {repeat}: {', '.join(map(str, repeats))}"
    return words + (f". {OUTDATED}: /compact writes it again" if effect.outdates_summary else "")


DEFAULT_LINES = 2_000
"""How many lines `view` shows unless told otherwise."""


class _View(Data, frozen=True):
    message: Message
    first: int
    last: int

    def covers(self, other: "_View") -> bool:
        return self.first <= other.first and other.last <= self.last


def superseded_views(history: Sequence[Message], *, cwd: str) -> list[Message]:
    """Results of `view` whose lines stand in the history again, later. In order."""
    waiting: dict[str, ToolCall] = {}
    latest: dict[str, list[_View]] = {}
    found: dict[str, None] = {}
    for message in history:
        waiting.update({call.id: call for call in message.calls})
        result = message.result
        call = waiting.pop(result.call_id, None) if result is not None else None
        if result is None or call is None or result.is_error:
            continue
        path = str(call.args.get("file_path") or "").strip()
        if not path:
            continue
        views = latest.setdefault(absolute(path, cwd), [])
        if call.name == "view":
            first = max(1, _number(call.args.get("offset"), 1))
            last = first + max(1, _number(call.args.get("limit"), DEFAULT_LINES)) - 1
            view = _View(message, first, last)
            old = [other for other in views if view.covers(other)]
            views[:] = [*(other for other in views if other not in old), view]
        elif call.name == "write":
            old, views[:] = list(views), []
        else:
            continue
        found.update(dict.fromkeys(stale.message.id for stale in old))
    return [message for message in history if message.id in found]


def _number(value: object, default: int) -> int:
    return int(text) if (text := str(value)).isdecimal() else default
