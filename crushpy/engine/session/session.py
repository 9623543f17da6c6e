"""One open session: its record, its history, and every write to them.

A message enters the history when its record is committed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from crushpy.context.facts import FactReader, MessageFacts
from crushpy.context.history import missing_results
from crushpy.context.overrides import (
    REMOVED,
    SentState,
    apply_overrides,
    by_message,
    sent_state,
    sent_states,
)
from crushpy.context.standing_rules import RulePhrases
from crushpy.core import events
from crushpy.core.boundary import BRANCH, SessionKind, Trigger
from crushpy.core.ids import new_id
from crushpy.core.messages import (
    BlockOrigin,
    Data,
    Image,
    Message,
    MessageOverride,
    Note,
    Origin,
    Overrides,
    Seed,
    SentStatus,
    Text,
    Todo,
    ToolCall,
    ToolResult,
    Usage,
    shortened,
)
from crushpy.core.pastes import find_pastes
from crushpy.core.timeline_notes import TimelineNote
from crushpy.security.redact import redact
from crushpy.storage.records import AuditEntry, BreakerState, CallStart, DatabaseLost, SessionInfo
from crushpy.storage.store import Store

Checkpoint = Callable[[], Awaitable[Callable[[], None] | None]]
"""Prepares a write for the transaction that stores a result; None if nothing changed."""
T = TypeVar("T")
TITLE_LENGTH = 80
NOT_RETURNED = "The branch has not returned yet."
COUNT_INLINE_CHARS = 65_536
"""Longer messages are examined in a thread."""


class LiveSession:
    """`stored` is False for a new session until its first prompt is committed with it."""

    def __init__(
        self,
        store: Store,
        loaded: "LoadedSession",
        emit: events.Emit,
        exact_size: Callable[[Message], int],
        call_ids: set[str] | None = None,
        phrases: Callable[[], RulePhrases] | None = None,
        checkpoint: "Checkpoint | None" = None,
    ) -> None:
        """`exact_size` gives the tokens to store with a message, 0 while they cannot be counted. `call_ids`
        are those already in use; the set is shared with other sessions of the conversation. `phrases` find
        standing rules; a task has none of its own, because its prompts are the agent's. `checkpoint`, of a
        task on a fleet, gives what is stored with the result of a call that may have changed files."""
        self.phrases = phrases
        self._exact_size = exact_size
        self._store = store
        self._emit = emit
        self.stored = loaded.stored
        self.notes = list(loaded.notes)
        """What happened between messages, for the user."""
        self._take_over(loaded)
        self._unreported = bool(self.info.parent_id) and not any(
            message.usage for message in self.own_messages
        )
        self.call_ids = call_ids if call_ids is not None else set[str]()
        self.call_ids |= {call.id for message in self.history for call in message.calls}
        self.unstored: list[Message] = []
        """Messages that could not be stored because the database was lost."""
        self._checkpoint = checkpoint
        self.rescued: set[str] = set()
        """Ids of the messages that were saved elsewhere after that."""

    def _take_over(self, loaded: "LoadedSession") -> None:
        self.info = loaded.info
        self.history = list(loaded.history)
        """The messages of the next request; in a continuation the seed and the tail come first."""
        self.overrides = by_message(loaded.overrides)
        """Message overrides: how requests show some of the messages."""
        self.statuses = {status.message_id: status for status in loaded.statuses}
        """Context statuses that stay in requests, by the message they follow."""
        self.held = loaded.held
        """A boundary of this session was undone: it ends late, on overflow, or on request only."""
        self.branches = loaded.branches
        """The open branches that lead here, the outermost first."""
        self._inherited = loaded.inherited
        self._before = loaded.before
        self._facts = FactReader(self.info.cwd, self.own_messages, self.phrases, redact)
        self._announced = False

    async def _commit(self, message: Message, write: Coroutine[Any, Any, None]) -> None:
        """Adds a message to the history once `write` has stored it."""
        try:
            await write
        except DatabaseLost:
            self.unstored.append(message)
            raise
        self.history.append(message)
        self._facts.committed(message)

    @property
    def usage(self) -> Usage:
        """Of the whole conversation, as far as this process knows."""
        return self._before + self.info.usage

    def spend(self, usage: Usage) -> None:
        """Adds the usage of a task; it is stored with the session of the task."""
        self._before += usage

    async def count(self, usage: Usage) -> None:
        """Adds and stores the usage of a model call that left no message."""
        session_id = self.info.id
        await self._store.sessions.add_usage(session_id, usage)
        if self.info.id == session_id:
            self.info = msgspec.structs.replace(self.info, usage=self.info.usage + usage)
        else:  # the tip changed meanwhile
            self._before += usage

    @property
    def seed(self) -> Seed | None:
        """What this session started with, if it continues another, as requests contain it."""
        return next((message.seed for message in apply_overrides(self.history[:1], self.overrides)), None)

    def in_view(self) -> set[str]:
        """Ids of the messages that a request contains in full."""
        return {message.id for message in self.history if not sent_state(self.overrides, message.id)}

    def has_loaded(self, key: str) -> bool:
        """Whether requests contain all of what `key` names: a skill or a rules file."""
        carried = self.seed.loaded if self.seed is not None else ()
        if any(message.key == key and message.text and message.whole for message in carried):
            return True
        shown = self.in_view()
        return any(
            message.result is not None and key in message.result.loaded and message.id in shown
            for message in self.history
        )

    @property
    def sent_states(self) -> dict[str, SentState]:
        """How requests show the messages that have an override."""
        return sent_states(self.overrides.values())

    @property
    def own_messages(self) -> Sequence[Message]:
        """Messages since this session was opened: neither its seed nor its tail."""
        return self.history[self._inherited :]

    def has_worked(self) -> bool:
        """True once a tool call has ended or a prompt has come since this session was opened."""
        return any(
            (message.result is not None and message.result.name != "new_session")
            or (message.role == "user" and (message.says_something or message.images))
            for message in self.own_messages
        )

    def continue_in(self, loaded: "LoadedSession") -> None:
        """Switches to another session: a child after a boundary, or the parent after an undo."""
        self.return_to(loaded)
        self._announced, self._unreported = False, True
        self.announce()

    def return_to(self, loaded: "LoadedSession") -> None:
        """Switches back to the parent of a branch, which was announced before. Messages that are known stay
        the same objects, so that what was derived from them stays valid."""
        known = {message.id: message for message in self.history}
        history = tuple(known.get(message.id, message) for message in loaded.history)
        self._take_over(msgspec.structs.replace(loaded, history=history))
        carried = [note for note in self.notes if note.after in {message.id for message in history}]
        self.notes = sorted({*loaded.notes, *carried}, key=lambda note: note.at)
        self._announced, self._unreported = True, False

    async def add_overrides(self, overrides: Sequence[MessageOverride]) -> None:
        """Stores overrides. Usage reports made before them describe another request."""
        last = self.history[-1].id if self.history else ""
        made = [msgspec.structs.replace(override, made_after=last) for override in overrides]
        await self._store.boundaries.add_overrides(self.info.id, made)
        self.overrides.update(by_message(made))

    async def add_status(self, status: SentStatus) -> None:
        """Stores a status that stays in requests; before the reply to it, whose thinking is bound to it."""
        await self._store.statuses.save(self.info.id, status)
        self.statuses[status.message_id] = status

    async def add_prompt(self, prompt: Message, *, steers: bool = False) -> MessageFacts:
        """Commits the user's prompt, and with it a new session; returns its facts. `steers`: in a turn."""
        prompt = self._sized(prompt)
        facts = await _off_loop_if_long(self.facts_of, prompt)  # the search for rules takes time
        if self.stored:
            await self._commit(prompt, self._store.messages.add(self.info.id, prompt, facts))
        else:
            words = prompt.text or " ".join(image.name for image in prompt.images)
            title = self.info.title or title_of(words)
            self.info = msgspec.structs.replace(self.info, title=title)
            await self._commit(prompt, self._create(prompt, facts))
            for warning in self._store.warnings:
                self._emit(events.Notice(warning, "warning"))
        self.announce()
        images = tuple(image.info for image in prompt.images)
        self._emit(events.PromptCommitted(prompt.id, prompt.text, images, steers, prompt.pasted))
        return facts

    async def _create(self, prompt: Message, facts: MessageFacts) -> None:
        await self._store.sessions.create(self.info, prompt, facts)
        await self._store.leases.acquire(self.info.id)
        self.stored = True

    async def reacquire_lease(self) -> None:
        """Takes the lease again, after another conversation of this process released it."""
        if self.stored:
            await self._store.leases.acquire(self.info.id)

    def announce(self) -> None:
        """Emits `session` once."""
        if not self._announced:
            self._announced = True
            info = self.info
            self._emit(events.SessionOpened(info.id, info.parent_id, info.model, info.compaction))

    def facts_of(self, message: Message) -> MessageFacts:
        """The facts of the next message; stored with it."""
        return self._facts.extract(message)

    def _sized(self, message: Message) -> Message:
        size = self._exact_size(message)
        return msgspec.structs.replace(message, tokens=size) if size else message

    async def add_reply(self, message: Message) -> None:
        message = await _off_loop_if_long(self._sized, message)
        await self._commit(message, self._store.messages.add(self.info.id, message, self.facts_of(message)))
        if message.usage is not None:
            self.info = msgspec.structs.replace(self.info, usage=self.info.usage + message.usage)
        interrupted = message.finish == "interrupted"
        texts = tuple(part.text for part in message.parts if isinstance(part, Text))
        self._emit(events.MessageCommitted(message.id, texts, message.model, interrupted))

    async def first_report(self, tokens: int) -> None:
        """Stores the usage of the first reply after a boundary with the boundary."""
        if self._unreported:
            self._unreported = False
            await self._store.boundaries.record_reported_tokens(self.info.id, tokens)

    async def begin_call(self, message: Message, call: ToolCall) -> None:
        """Commits the intent to run `call`."""
        await self._store.calls.begin(self.info.id, message.id, call)

    async def add_result(self, result: ToolResult, start: CallStart | None = None) -> None:
        """Commits the result of a call; `start` is how it began, if that is not stored yet."""
        message = self._sized(result_message(result))
        facts = self.facts_of(message)
        beside = await self._checkpoint() if self._checkpoint is not None and start is None else None
        await self._commit(message, self._store.calls.finish(self.info.id, message, start, facts, beside))

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        """Adds to the audit of the conversation."""
        await self._store.audit.append(self.info.root_id, entries)

    async def add_note(self, note: Note) -> None:
        """Commits a note for the model; it is sent with the next request."""
        message = note_message(note)
        await self._commit(message, self._store.messages.add(self.info.id, message, self.facts_of(message)))

    async def update(self, **changes: Any) -> None:
        """Changes fields of the session's record, and stores them if it is stored."""
        if self.stored:
            await self._store.sessions.update(self.info.id, **changes)
        self.info = msgspec.structs.replace(self.info, **changes)

    def renamed(self, title: str) -> None:
        """Takes over a title that is stored already."""
        self.info = msgspec.structs.replace(self.info, title=title)

    async def set_title(self, title: str) -> None:
        await self.update(title=title)
        self._emit(events.TitleChanged(title))

    async def set_todos(self, todos: tuple[Todo, ...]) -> None:
        await self.update(todos=todos)
        self._emit(events.TodosChanged(todos))

    async def set_breaker(self, breaker: BreakerState) -> None:
        """Stores the state of the circuit breaker for the next process."""
        if breaker != self.info.breaker:
            await self.update(breaker=breaker)


async def _off_loop_if_long(work: Callable[[Message], T], message: Message) -> T:
    return await asyncio.to_thread(work, message) if message.length > COUNT_INLINE_CHARS else work(message)


class OpenBranch(Data, frozen=True):
    session_id: str
    parent_id: str
    goal: str
    first: str
    call_id: str = ""
    """The call that opened it, in its parent; empty if the user did."""


class LoadedSession(Data, frozen=True):
    """A session and the content of its requests."""

    info: SessionInfo
    history: tuple[Message, ...] = ()
    overrides: tuple[MessageOverride, ...] = ()
    held: bool = False
    inherited: int = 0
    """How many messages at the beginning came with the boundary."""
    before: Usage = Usage()
    """Usage of the other sessions of the conversation."""
    notes: tuple[TimelineNote, ...] = ()
    stored: bool = True
    statuses: tuple[SentStatus, ...] = ()
    branches: tuple[OpenBranch, ...] = ()


async def load_session(store: Store, info: SessionInfo, *, read_only: bool = False) -> LoadedSession:
    """A stored session, repaired: a call without a result gets an error result, and is never run again."""
    own = await store.messages.load(info.id)
    if info.imported:
        # Another agent's usage is about other prompts and tools.
        last, ids = await store.imports.find_last_message(info.root_id), [message.id for message in own]
        foreign = ids.index(last) + 1 if last in ids else 0
        own[:foreign] = [msgspec.structs.replace(message, usage=None) for message in own[:foreign]]
    draft = await store.messages.load_draft(info.id, recover=not read_only)
    if draft is not None:
        own.append(draft)
    for result in missing_results(own, await store.calls.list_open(info.id)):
        waits = info.end_reason == BRANCH and result.name == BRANCH
        message = result_message(ToolResult(result.call_id, BRANCH, NOT_RETURNED) if waits else result)
        if not read_only and not waits:
            await store.calls.finish(info.id, message)
        own.append(message)
    carried = await store.boundaries.load_carried(info.id)
    seeded = bool(own) and own[0].seed is not None
    history = (*own[:1], *carried.tail, *own[1:]) if seeded else (*carried.tail, *own)
    inherited = len(carried.tail) + seeded
    # All of the conversation, branches included: undone sessions were paid for.
    others = [
        session
        for session in await store.sessions.load_conversation(info.root_id)
        if session.id != info.id and session.kind != "task"
    ]
    before = Usage()
    if info.kind != "task":
        before = await store.usage.sum_conversation(info.root_id) - info.usage
    statuses = tuple(await store.statuses.load(info.id))
    parent, held = next((other for other in others if other.id == info.parent_id), None), carried.held
    if info.kind == BRANCH and parent is not None:  # its requests begin as those of its parent did
        above = await load_session(store, parent, read_only=True)
        inherited, held, shown = above.inherited, held or above.held, {message.id for message in history}
        statuses = (*(status for status in above.statuses if status.message_id in shown), *statuses)
    return LoadedSession(
        info,
        history,
        carried.overrides,
        held,
        inherited,
        before,
        tuple(await store.notes.load(info.id, [message.id for message in carried.tail])),
        statuses=statuses,
        branches=await load_open_branches(store, info, others),
    )


async def load_open_branches(
    store: Store, info: SessionInfo, others: Sequence[SessionInfo]
) -> tuple[OpenBranch, ...]:
    """The branches that lead to a session, the outermost first. `others` are those of its conversation."""
    known, found = {other.id: other for other in others}, list[OpenBranch]()
    session: SessionInfo | None = info
    while session is not None:
        if session.kind == BRANCH and session.parent_id is not None:
            opening = await store.boundaries.find_opening(session.id)
            first = (await store.messages.load_ends(session.id, 1))[0]
            call_id = first.result.call_id if first.result is not None else ""
            goal = opening.moment if opening is not None else ""
            found.append(OpenBranch(session.id, session.parent_id, goal, first.id, call_id))
        session = known.pop(session.parent_id or "", None)  # a cycle of parents ends here
    return tuple(reversed(found))


def child_of(
    parent: SessionInfo, now: float, trigger: Trigger = "", kind: SessionKind = "continuation"
) -> SessionInfo:
    """The session that continues `parent`, or another `kind` of child, with all that is carried over."""
    breaker = parent.breaker
    if trigger in ("auto", "fallback"):  # crushpy made it by itself: the circuit breaker judges it
        breaker = msgspec.structs.replace(breaker, unjudged=True)
    return msgspec.structs.replace(
        parent,
        id=new_id(),
        parent_id=parent.id,
        kind=kind,
        generation=parent.generation + (kind == "continuation"),
        created_at=now,
        updated_at=now,
        ended_at=None,
        end_reason="",
        message_count=0,
        usage=Usage(),
        breaker=breaker,
    )


def result_message(result: ToolResult) -> Message:
    return Message(new_id(), "tool", (result,), time.time())


def note_message(note: Note) -> Message:
    return Message(new_id(), "user", (note,), time.time())


def user_message(
    text: str,
    images: Sequence[Image] = (),
    pasted: Sequence[str] = (),
    origin: Origin = "typed",
    block: BlockOrigin = "pasted",
) -> Message:
    """A prompt; without a text part if it is only a picture. `pasted` are parts of `text`, in order."""
    words = (Text(text, tuple(find_pastes(text, pasted)), origin, block),) if text or not images else ()
    return Message(id=new_id(), role="user", parts=(*words, *images), created_at=time.time())


def title_of(prompt: str) -> str:
    """The first non-blank line, shortened."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "untitled")
    return shortened(line, TITLE_LENGTH)


def title_after_edits(title: str, lineage: Sequence[Message], edits: Overrides) -> str:
    """A title that is the first line of a prompt: that of the first prompt that is left. Others stay."""

    def titles(messages: Iterable[Message]) -> list[str]:
        said = (message.text for message in messages if message.role == "user")
        return [title_of(text) for text in said if text.strip()]

    left = [found for found in titles(apply_overrides(lineage, edits)) if found != REMOVED]
    return [*left, REMOVED][0] if title in (REMOVED, *titles(lineage)) else title
