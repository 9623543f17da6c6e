"""Turns events of the engine, and stored messages, into items of the transcript."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from crushpy.context.overrides import SentState
from crushpy.core import events
from crushpy.core.boundary import Boundary
from crushpy.core.call_words import call_words
from crushpy.core.errors import CrushpyError
from crushpy.core.mcp_names import is_server_tool
from crushpy.core.messages import (
    Data,
    Message,
    Note,
    Seed,
    TaskReport,
    Terminal,
    Thinking,
    ToolCall,
    ToolResult,
)
from crushpy.core.timeline_notes import CUT_REPLY, TimelineNote, answer_words
from crushpy.tui.items import (
    ALL_BOUNDARY_ACTIONS,
    ASIDE,
    BoundaryItem,
    ErrorItem,
    ItemAction,
    NoticeItem,
    ReplyItem,
    ThinkingItem,
    ToolItem,
    ToolState,
    TranscriptItem,
    UserItem,
    source_text,
)
from crushpy.util.shown_paths import path_shortener

if TYPE_CHECKING:
    from crushpy.engine.session.browser import OpeningBoundary
    from crushpy.engine.session.session import OpenBranch
    from crushpy.tui.transcript.widget import Transcript

NO_STATES: Mapping[str, SentState] = {}


class FoundPlace(Data, frozen=True):
    """A message that a search has found, and the words it was found by."""

    session_id: str
    message_id: str
    words: tuple[str, ...] = ()


class TranscriptPresenter:
    """Tracks what is being streamed. One for each transcript.

    `offers` are the actions on the card of a boundary; `reach` tells how to get to its keys.
    """

    def __init__(
        self, view: "Transcript", offers: tuple[ItemAction, ...] = ALL_BOUNDARY_ACTIONS, reach: str = ""
    ) -> None:
        self._view = view
        self._offers = offers
        self._reach = reach
        self._reply: int | None = None
        self._thinking: int | None = None
        self._thinking_since = self._thinking_until = 0.0
        self._tools: dict[str, int] = {}
        """The keys of running calls, by their ids."""
        self._branch_call: int | None = None
        """The call that opened the next branch."""
        self._branches: list[int] = []
        """The lines of the open branches, the outermost first."""
        self._last_message = ""
        self._aside: int | None = None
        """The last answer to a side question, which Esc folds."""
        self._card: int | None = None
        """The card whose tokens the next reply reports."""
        self.shorten = path_shortener(())

    @property
    def talking(self) -> bool:
        """Whether a reply is coming of which something was said."""
        return self._reply is not None or self._thinking is not None

    def show_paths_from(self, *folders: str) -> None:
        """Shows paths relative to these folders."""
        self.shorten = path_shortener(folders)

    def show(self, item: TranscriptItem) -> int:
        return self._view.add(self._with_short_paths(item))

    def _with_short_paths(self, item: TranscriptItem) -> TranscriptItem:
        match item:
            case ToolItem():
                changes = {"headline": self.shorten(item.headline), "answer": self.shorten(item.answer)}
            case NoticeItem():
                changes = {"text": self.shorten(item.text)}
            case ErrorItem():
                changes = {"message": self.shorten(item.message), "hint": self.shorten(item.hint)}
            case _:
                return item
        return msgspec.structs.replace(item, **changes)

    def fail(self, error: Exception) -> None:
        """Shows an error of the app itself."""
        if isinstance(error, CrushpyError):
            self.show(ErrorItem(error.message, error.hint))
        else:
            self.show(ErrorItem(f"{type(error).__name__}: {error}"))

    def message_id(self, key: int) -> str:
        """The message that an item of the view shows; empty if it is none, or not stored yet."""
        item = self._view.item(key)
        return item.message_id if isinstance(item, UserItem | ReplyItem | ThinkingItem | ToolItem) else ""

    def reveal(self, place: FoundPlace, history: Sequence[Message]) -> bool:
        """Goes to the item that shows a message, preferably one that has the words; False if none
        does."""
        message = next((message for message in history if message.id == place.message_id), None)
        items = [(key, self._view.item(key)) for key in self._view.keys()]  # noqa: SIM118
        shown = [(key, item) for key, item in items if message and item and self._shows(key, item, message)]
        wanted = [word.casefold() for word in place.words]

        def rank(pair: tuple[int, TranscriptItem]) -> tuple[int, bool]:
            text = source_text(pair[1]).casefold()
            return -sum(word in text for word in wanted), not isinstance(pair[1], UserItem | ReplyItem)

        if shown:
            self._view.interaction.reveal(min(shown, key=rank)[0], place.words)
        return bool(shown)

    def _shows(self, key: int, item: TranscriptItem, message: Message) -> bool:
        if message.result is not None:
            return isinstance(item, ToolItem) and item.id == message.result.call_id
        if any(isinstance(part, Seed) for part in message.parts):
            return isinstance(item, BoundaryItem)
        return self.message_id(key) == message.id

    def load(
        self,
        history: Sequence[Message],
        opening: "OpeningBoundary | None" = None,
        states: Mapping[str, SentState] = NO_STATES,
        marks: Sequence[TimelineNote] = (),
        branches: "Sequence[OpenBranch]" = (),
    ) -> None:
        """Shows a stored session.

        `opening` is the boundary it begins with, `states` tells which messages are not sent whole,
        `marks` what happened between its messages, and `branches` which of them are in a branch.
        """
        self._reply = self._thinking = self._card = self._branch_call = self._aside = None
        self._tools.clear()
        self._branches.clear()
        first = {branch.first: branch for branch in branches}
        starts = [number for number, message in enumerate(history) if message.id in first]
        shown = history[: starts[0]] if starts else history
        self._view.set_items(
            [
                self._placed(item) if isinstance(item, BoundaryItem) else self._with_short_paths(item)
                for item in stored_items(shown, opening, states, marks)
            ]
        )
        if opening is not None and opening.boundary.reported_after is None:  # the first reply reports it
            self._card = self._card_of(opening.boundary.child_id)
        for start, end in pairwise([*starts, len(history)]):
            self._open_branch(first[history[start].id].goal)
            inside = history[start + 1 : end]
            for item in stored_items(inside, opening, states, [mark for mark in marks if mark.after]):
                self.show(item)

    def _placed(self, card: BoundaryItem) -> BoundaryItem:
        """A card with the actions available here."""
        offers = tuple(action for action in card.offers if action in self._offers)
        return msgspec.structs.replace(card, offers=offers, reach=self._reach)

    def hear(self, event: events.Event) -> None:
        match event:
            case events.TextDelta():
                if self._thinking is not None:
                    self._thinking_until = time.monotonic()
                    self._end_thinking()
                if self._reply is None:
                    self._reply = self._view.add(ReplyItem("", done=False))
                self._view.stream(self._reply, event.text)
            case events.ThinkingDelta():
                self._thinking_until = time.monotonic()
                if self._thinking is None:
                    self._thinking = self._view.add(ThinkingItem("", done=False))
                    self._thinking_since = self._thinking_until
                self._view.stream(self._thinking, event.text)
            case events.ToolOutput():
                if event.id in self._tools:
                    self._view.stream(self._tools[event.id], event.text)
            case events.MessageCommitted() | events.TurnEnded():
                stored = event.message_id if isinstance(event, events.MessageCommitted) else ""
                self._last_message = stored or self._last_message
                self._end_thinking(stored)
                if self._reply is not None:
                    self._view.finish(self._reply, stored)
                    self._reply = None
            case events.Retry():
                for key in (self._thinking, self._reply):  # what was streamed of the reply that failed
                    if key is not None:
                        self._view.remove_item(key)
                self._thinking = self._reply = None
                if event.status is None and event.attempt == 1:  # no answer: more than a busy server
                    self.show(NoticeItem(event.reason, "warning"))
            case events.PromptCommitted():
                self.show(UserItem(event.text, event.images, event.message_id, pasted=event.pasted))
            case events.BoundaryCommitted():
                card = BoundaryItem(event, event.summary, event.evidence, event.pins, event.rules)
                self._card = self._view.add(self._placed(card))
            case events.HindsightKnown():
                self._change(self._card_of(event.child_id), hindsight=event.words)
            case events.UsageReported():
                if event.call.total:  # replaces the estimate on the card of the last boundary
                    self._change(self._card, reported=event.call.total)
                self._card = None
            case _:
                self._hear_of_calls(event)

    def show_note(self, note: TimelineNote) -> None:
        """The answer to a side question opens in its place, until it is folded."""
        item = _mark_item(note)
        if not isinstance(item, ToolItem):
            self.show(item)
            return
        item = msgspec.structs.replace(item, answer="Esc folds · Tab, then c copies")
        self._aside = self.show(item)
        self._view.interaction.open_new(self._aside)

    def fold_aside(self) -> bool:
        """Folds the last answer to a side question; False if it is not open."""
        key, self._aside = self._aside, None
        if key is None:
            return False
        self._change(key, answer="")
        return self._view.interaction.fold(key)

    def _hear_of_calls(self, event: events.Event) -> None:
        match event:
            case events.ToolCalled():
                self._tools[event.id] = self.show(_called(event, "waiting", self._last_message))
            case events.ToolStarted():
                self._change(self._tools.get(event.id), state="running")
            case events.TaskProgress():
                self._change(self._tools.get(event.id), session_id=event.session_id)
            case events.ApprovalNeeded():  # perhaps about a command that the user has changed
                asked = _called(event, "waiting").headline
                self._change(self._tools.get(event.id), headline=asked, answer="")
            case events.ApprovalDone() if event.answer == "deny":
                said = answer_words(event.answer, event.covers, event.words)
                self._change(self._tools.get(event.id), answer=said)
            case events.ToolFinished():
                key = self._tools.pop(event.id, None)
                if event.name == "branch" and not event.is_error:
                    self._branch_call = key
                self._finish_call(key, event)
            case events.BranchOpened():
                self._open_branch(event.goal)
            case events.BranchReturned() if self._branches:
                self._fold_branch(event)
            case _:
                pass

    def _open_branch(self, goal: str) -> None:
        """What follows is shown indented below the line of the branch."""
        key, self._branch_call = self._branch_call, None
        call = None if key is None else self._view.item(key)
        item = ToolItem(call.id if isinstance(call, ToolItem) else "", "branch", goal, "running")
        if key is None:
            key = self.show(item)
        else:
            self._view.replace(key, self._with_short_paths(item))
        self._branches.append(key)
        self._view.open_branch()

    def _fold_branch(self, event: events.BranchReturned) -> None:
        """Replaces the items of a branch by one line: what it used, and what is left of it."""
        self._view.fold_branch()
        ended: Any = "interrupted" if event.interrupted else ""
        result = ToolResult("", "branch", event.report.text, display=event.report, ended=ended)
        self._finish_call(self._branches.pop(), result)

    def _end_thinking(self, message_id: str = "") -> None:
        seconds = int(self._thinking_until - self._thinking_since)
        self._change(self._thinking, done=True, seconds=seconds, message_id=message_id)
        self._thinking = None

    def _card_of(self, child_id: str) -> int | None:
        """The card of the boundary that opened this session, if it is shown."""
        keys = self._view.keys()
        cards = [(key, item) for key in keys if isinstance(item := self._view.item(key), BoundaryItem)]
        return next((key for key, card in reversed(cards) if card.boundary.child_id == child_id), None)

    def _change(self, key: int | None, **changes: object) -> None:
        """Changes an item, unless it is not shown, or is like that already."""
        item = None if key is None else self._view.item(key)
        if key is not None and item is not None:
            changed = msgspec.structs.replace(item, **changes)
            if changed != item:
                self._view.replace(key, self._with_short_paths(changed))

    def _finish_call(self, key: int | None, result: ToolResult | events.ToolFinished) -> None:
        item = None if key is None else self._view.item(key)
        if key is not None and isinstance(item, ToolItem):
            self._view.replace(key, self._with_short_paths(_finished(item, result)))


def stored_items(
    history: Iterable[Message],
    opening: "OpeningBoundary | None" = None,
    states: Mapping[str, SentState] = NO_STATES,
    marks: Sequence[TimelineNote] = (),
) -> Iterable[TranscriptItem]:
    """A stored history as items, each call with its result, and what happened between messages."""
    messages = list(history)
    results = {
        message.result.call_id: (message.id, message.result)
        for message in messages
        if message.result is not None
    }
    behind: dict[str, list[TimelineNote]] = {}
    for mark in marks:
        behind.setdefault(mark.after, []).append(mark)
    yield from map(_mark_item, behind.get("", ()))
    for message in messages:
        if message.role != "tool":
            yield from _part_items(message, opening)
            yield from _text_items(message, states.get(message.id, ""))
            if message.finish == "interrupted" and message.id not in behind:
                yield NoticeItem(CUT_REPLY)
        notes = behind.get(message.id, ())
        yield from (_mark_item(mark) for mark in notes if mark.early)
        for call in message.calls:
            item = _called(call, "interrupted", message.id)
            if call.id in results:
                answer, result = results[call.id]
                item = msgspec.structs.replace(_finished(item, result), sent=states.get(answer, ""))
            yield item
        yield from (_mark_item(mark) for mark in notes if not mark.early)


def _part_items(message: Message, opening: "OpeningBoundary | None") -> Iterable[TranscriptItem]:
    """What is shown before the text of a message."""
    for part in message.parts:
        match part:
            case Seed():
                yield stored_boundary_item(part, opening)
            case Note() if (report := part.branch) is not None:
                item = ToolItem("", "branch", report.goal, message_id=message.id)
                yield _finished(item, ToolResult("", "branch", report.text, display=report))
            case Note() if not part.about and part.origin != "file":  # a notice tells of a file
                yield NoticeItem(f"Told the model: {part.text}")
            case Thinking():
                if part.text:
                    yield ThinkingItem(part.text, seconds=part.seconds, message_id=message.id)
            case _:
                pass


def _text_items(message: Message, sent: SentState) -> Iterable[TranscriptItem]:
    if message.role != "user":
        if message.says_something:
            yield ReplyItem(message.text, message_id=message.id, sent=sent)
    elif message.text or message.images:
        images = tuple(image.info for image in message.images)
        yield UserItem(message.text, images, message.id, sent, message.pasted)


def _called(
    call: ToolCall | events.ToolCalled | events.ApprovalNeeded, state: ToolState, message_id: str = ""
) -> ToolItem:
    verb, about = call_words(call.name, call.args, more=" …")
    server = verb if is_server_tool(call.name) else ""
    return ToolItem(call.id, call.name, about, state, message_id=message_id, server=server)


def _mark_item(mark: TimelineNote) -> TranscriptItem:
    if mark.kind == "aside":
        return ToolItem("", ASIDE, mark.hint, output=mark.text)
    return ErrorItem(mark.text, mark.hint) if mark.kind == "error" else NoticeItem(mark.text, mark.kind)


def _finished(item: ToolItem, result: ToolResult | events.ToolFinished) -> ToolItem:
    worker = result.display.session_id if isinstance(result.display, TaskReport) else item.session_id
    decision = result.decision
    state: ToolState = "failed" if result.is_error else "done"
    if result.ended:
        state = "interrupted"
    elif decision is not None and decision.verdict == "denied":
        state = "denied"
    said = item.answer
    if decision is not None and decision.answer == "deny":
        said = answer_words("deny", "", decision.words)
    ended = {"not_run": "not run", "interrupted": "stopped"}.get(result.ended, "")
    about = item.headline
    if result.name == "bash" and isinstance(result.display, Terminal):  # the user may have changed it
        _, about = call_words(result.name, {"command": result.display.command}, more=" …")
    return msgspec.structs.replace(
        item,
        headline=about,
        state=state,
        display=result.display,
        output=result.text,
        session_id=worker,
        answer=" · ".join([words for words in (said, ended) if words]),
        decision=decision,
    )


def stored_boundary_item(seed: Seed, opening: "OpeningBoundary | None") -> BoundaryItem:
    """The card of an earlier boundary; it has few details if no record of it is stored."""
    texts = seed.summary, seed.evidence, seed.pins, seed.rules
    if opening is None:
        return BoundaryItem(Boundary("", "", "", ""), *texts, offers=("edit_template", "tree"))
    return BoundaryItem(
        opening.boundary,
        *texts,
        undone=opening.boundary.undone_at is not None,
        sessions_before=opening.sessions,
        messages_before=opening.messages,
        reported=opening.boundary.reported_after,
        offers=tuple(action for action in ALL_BOUNDARY_ACTIONS if opening.own or action != "undo"),
    )
