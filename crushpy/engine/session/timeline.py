"""What happened between messages, for the user: a note is made of an event once, stored, and then shown."""

import time

import msgspec

from crushpy.core import events
from crushpy.core.call_words import call_title
from crushpy.core.messages import Usage, counted
from crushpy.core.timeline_notes import INTERRUPTED, TimelineNote, answer_words, turn_words
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store


class Timeline:
    """The notes of a conversation: interruptions, errors, warnings, ended jobs."""

    def __init__(self, store: Store, session: LiveSession) -> None:
        self._store, self._session = store, session
        self._asked: dict[str, events.ApprovalNeeded] = {}
        self._in_turn = False
        """Notes are stored now: an event is part of a turn, not the reply to a command."""
        self._calls_announced = False
        self._began = 0.0
        self._steps = 0
        self._used = self._used_before = Usage()
        """By the steps of this turn, and by the conversation before it."""

    def note(self, event: events.Event) -> TimelineNote | None:
        """The note of an event, if it has one. It is stored in the background, if it is to last."""
        if type(event) is events.TextDelta:  # thousands of them
            return None
        note = self._make_note(event)
        lasting = self._in_turn or isinstance(event, events.JobEnded | events.SideAnswer)
        if note is not None and lasting and self._session.stored:
            history = self._session.history
            note = msgspec.structs.replace(
                note,
                after=history[-1].id if history else "",
                early=bool(history and history[-1].calls) and not self._calls_announced,
                at=time.time(),
            )
            self._session.notes.append(note)
            self._store.notes.record(self._session.info.id, note)
        if isinstance(event, events.PromptCommitted | events.TurnEnded):
            self._in_turn = isinstance(event, events.PromptCommitted)
        if isinstance(event, events.MessageCommitted | events.ToolCalled):
            self._calls_announced = isinstance(event, events.ToolCalled)
        return note

    def _make_note(self, event: events.Event) -> TimelineNote | None:
        match event:
            case events.ApprovalNeeded():
                self._asked[event.id] = event
            case events.ApprovalDone():
                return self._answered(event)
            case events.Notice():
                return TimelineNote("warning" if event.level == "warning" else "info", event.text)
            case events.Error():
                return TimelineNote("error", event.message, event.hint)
            case events.SideAnswer():
                cost = f"${event.usage.cost:.4f}" if event.usage.cost else counted(event.usage.total, "token")
                return TimelineNote("aside", event.text, f"{event.question} ({cost})")
            case events.JobEnded():
                return TimelineNote("info", event.text)
            case events.PromptCommitted() if not self._in_turn:
                self._began, self._used, self._used_before = time.time(), Usage(), self._session.usage
            case events.MessageCommitted():
                self._steps += 1
            case events.UsageReported():
                self._used += event.call
            case events.TurnEnded() if self._steps or event.status == "interrupted":
                # A partial reply reports no usage: only the conversation counts it.
                ended = event.status != "interrupted"
                used = self._used if ended else self._session.usage - self._used_before
                seconds = max(0.0, time.time() - self._began)
                tokens = used.total - used.cache_read_tokens
                words = turn_words(seconds, self._steps, tokens, used.cost) if self._steps else ""
                self._steps = 0  # an error may end the next turn before it begins
                said = "" if ended else INTERRUPTED
                return TimelineNote("turn", " ".join(filter(None, (said, words))))
            case _:
                pass
        return None

    def _answered(self, event: events.ApprovalDone) -> TimelineNote | None:
        """Only for calls of tasks, which have no line of their own."""
        question = self._asked.pop(event.id, None)
        said = answer_words(event.answer, event.covers, event.words)
        if question is None or not question.task or not said:
            return None
        what = call_title(question.name, question.args, more=" …")
        return TimelineNote("info", f"For a task, {said}: {what}")
