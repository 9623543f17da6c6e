"""Keeps the marks of a conversation: interruptions, errors, warnings, jobs that ended."""

import time

import msgspec

from crushpy.core.events import Event, JobEnded, MessageCommitted, TextDelta, ToolCalled, TurnEnded
from crushpy.core.timeline_notes import NoteMaker
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store


class NoteRecorder:
    """Listens to everything. Nobody waits for it, and nothing depends on it."""

    def __init__(self, store: Store, session: LiveSession) -> None:
        self._store = store
        self._session = session
        self._marks = NoteMaker()
        self._calls_told = False

    def __call__(self, event: Event) -> None:
        if type(event) is TextDelta:  # thousands of them
            return
        mark = self._marks.hear(event)
        lasting = self._marks.lasting or isinstance(event, JobEnded)
        if mark is not None and lasting and self._session.stored:
            history = self._session.history
            mark = msgspec.structs.replace(
                mark,
                after=history[-1].id if history else "",
                early=bool(history and history[-1].calls) and not self._calls_told,
                at=time.time(),
            )
            self._session.marks.append(mark)
            self._store.notes.record(self._session.info.id, mark)
        match event:
            case MessageCommitted():
                self._calls_told = False
            case ToolCalled():
                self._calls_told = True
            case TurnEnded():
                self._marks.lasting = False
            case _:
                pass
