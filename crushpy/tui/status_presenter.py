"""Keeps the status line true: listens to events, asks the engine how full the window is."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.forecast import turns_left_hint
from crushpy.core.events import (
    ApprovalDone,
    ApprovalNeeded,
    BoundaryCommitted,
    Event,
    JobEnded,
    ModeChanged,
    PreparationChanged,
    PromptCommitted,
    SessionOpened,
    TextDelta,
    ToolFinished,
    TurnEnded,
    UsageReported,
)
from crushpy.tui.greeting import home_relative
from crushpy.tui.widgets.status_bar import MODE_WORDS, Reading, StatusBar

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation

_MEASURED_AFTER = (
    *(PromptCommitted, UsageReported, BoundaryCommitted, SessionOpened, TurnEnded),
    *(PreparationChanged, ModeChanged, JobEnded),
)
FRAME = 0.1
"""Seconds between two drawings of the line: events come by the thousand, faster than anyone reads."""


class StatusPresenter:
    """Sets the bar's state only when something changed: nothing is drawn while the agent is idle.

    The first change after a rest shows at once, those that follow with the next frame.
    """

    def __init__(self, bar: StatusBar) -> None:
        self._bar = bar
        self._state = bar.state
        self._conversation: Conversation | None = None
        self._questions: set[str] = set()
        self._reading_due = False
        self._frame_due = False
        self._last_frame = 0.0

    def follow(self, conversation: "Conversation", *, yolo: bool) -> None:
        self._conversation = conversation
        self._set(yolo=yolo)
        self._locate(conversation)
        self.refresh()

    @property
    def in_use(self) -> int:
        """The tokens that the next request has, as they were read last, drawn or not."""
        return self._state.reading.used

    def refresh(self) -> None:
        """Reads model, method, window and cost again."""
        conversation = self._conversation
        if conversation is None:
            return
        info = conversation.info
        if not conversation.busy:
            self._ask_nothing()
        self._set(
            model=info.model,
            method=info.compaction,
            generation=info.generation,
            cost=conversation.usage.cost,
            jobs=len(conversation.running_jobs),
            mode=MODE_WORDS[conversation.mode] if info.mode or conversation.mode != "ask" else "",
            reading=_reading(conversation),
            forecast=turns_left_hint(conversation.context.forecast()),
        )

    def _ask_nothing(self) -> None:
        self._questions.clear()
        self._set(asks=False)

    def _read_soon(self) -> None:
        """Reads how full the window is, at most once a frame."""
        self._reading_due = True
        self._request_frame()

    def _locate(self, conversation: "Conversation") -> None:
        from crushpy.engine.environment import git_branch

        cwd = Path(conversation.info.cwd)
        self._set(folder=home_relative(cwd), branch=git_branch(cwd))
        self._bar.run_worker(self._say_whether_confined(conversation))

    async def _say_whether_confined(self, conversation: "Conversation") -> None:
        """The first look tries what there is, which takes a process: not while the user types."""
        why_not = await asyncio.to_thread(lambda: conversation.why_no_sandbox)
        if self._conversation is conversation:
            self._set(unconfined=bool(why_not))

    def set_yolo(self, on: bool) -> None:
        self._set(yolo=on)

    def set_editing(self, word: str) -> None:
        """What vim's keys do in the prompt."""
        self._set(editing=word)

    def set_below(self, lines: int) -> None:
        """How many lines of the transcript are below what is seen."""
        self._set(below=lines)

    def hear(self, event: Event) -> None:
        if type(event) is TextDelta:  # thousands of them
            return
        match event:
            case ApprovalNeeded():
                self._questions.add(event.id)
                self._set(asks=True)
            case ApprovalDone():
                self._questions.discard(event.id)
                self._set(asks=bool(self._questions))
            case TurnEnded():
                self._ask_nothing()
                # A command may have changed the branch; a turn may end after the app.
                if self._conversation is not None and self._bar.is_running:
                    self._locate(self._conversation)
            case _:
                pass
        if isinstance(event, ToolFinished):
            self._read_soon()
        elif isinstance(event, _MEASURED_AFTER):
            self.refresh()

    def _set(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        if self._state != self._bar.state:
            self._request_frame()

    def _request_frame(self) -> None:
        if self._frame_due:
            return
        wait = self._last_frame + FRAME - time.monotonic()
        if wait <= 0 and not self._reading_due:
            self._frame()
        else:
            self._frame_due = True
            self._bar.set_timer(max(wait, FRAME / 3), self._frame)

    def _frame(self) -> None:
        self._frame_due = False
        if self._reading_due and self._conversation is not None:
            self._state = msgspec.structs.replace(self._state, reading=_reading(self._conversation))
        self._reading_due = False
        self._last_frame = time.monotonic()
        if self._state != self._bar.state:
            self._bar.state = self._state


def _reading(conversation: "Conversation") -> Reading:
    budget = conversation.context.budget()
    return Reading(
        budget.used, budget.window, budget.estimated, budget.window_known, conversation.context.preparation
    )
