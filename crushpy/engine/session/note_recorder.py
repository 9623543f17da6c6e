"""Stores the timeline notes of a conversation: interruptions, errors, warnings, ended jobs."""

import time

import msgspec

from crushpy.core.events import Event, JobEnded, MessageCommitted, TextDelta, ToolCalled, TurnEnded
from crushpy.core.timeline_notes import NoteMaker
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store


class NoteRecorder:
    """Called by the event bus before it emits an event. Writing happens in the background."""

    def __init__(self, store: Store, session: LiveSession) -> None:
        self._store = store
        self._session = session
        self._notes = NoteMaker()
        self._calls_announced = False

    def record(self, event: Event) -> None:
        if type(event) is TextDelta:  # thousands of them
            return
        note = self._notes.make_note(event)
        lasting = self._notes.lasting or isinstance(event, JobEnded)
        if note is not None and (lasting or note.kind == "aside") and self._session.stored:
            history = self._session.history
            note = msgspec.structs.replace(
                note,
                after=history[-1].id if history else "",
                early=bool(history and history[-1].calls) and not self._calls_announced,
                at=time.time(),
            )
            self._session.notes.append(note)
            self._store.notes.record(self._session.info.id, note)
        match event:
            case MessageCommitted():
                self._calls_announced = False
            case ToolCalled():
                self._calls_announced = True
            case TurnEnded():
                self._notes.lasting = False
            case _:
                pass
