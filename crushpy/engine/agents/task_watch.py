"""Tells how one task of a list gets on: its own events, with its name, and where it stands."""

from collections.abc import Callable
from typing import cast

import msgspec

from crushpy.core.events import (
    AgentEvent,
    Event,
    ListedTaskChanged,
    MessageCommitted,
    Retry,
    SessionOpened,
    TaskEvent,
    ToolCalled,
    UsageReported,
)
from crushpy.core.messages import headline
from crushpy.storage.records import ListedTask

LINE = 200
"""Characters of the line that says what it does."""


class TaskWatch:
    """`many` tasks are in the list; `worktree`: this one has a worktree of its own."""

    def __init__(
        self, task: ListedTask, many: int, emit: Callable[[Event], None], *, worktree: bool = False
    ) -> None:
        self._emit = emit
        self._many = many
        self._worktree = worktree
        self._line = ""
        self.task = task
        """As it stands."""

    def __call__(self, event: Event) -> None:
        """What the sub-agent that works on it tells."""
        self._emit(TaskEvent(self.task.name, cast(AgentEvent, event)))
        match event:
            case SessionOpened():
                self.change(session_id=event.id)
            case ToolCalled():
                self.tell(f"{event.name} {headline(event.name, event.args, more=' …')}")
            case MessageCommitted():
                self.change(steps=self.task.steps + 1)
                self.tell(_last_line(event.text))
            case UsageReported():
                self.change(tokens=event.total.total, cost=event.total.cost)
                self.tell()
            case Retry():
                self.tell(f"{event.reason} Trying again in {event.seconds:g} s.")
            case _:
                pass

    def change(self, **changes: str | float) -> None:
        self.task = msgspec.structs.replace(self.task, **changes)

    def tell(self, line: str = "") -> None:
        """Says where it stands, and what it does or said last."""
        self._line = line.strip() or self._line
        self._emit(standing(self.task, self._many, self._line[:LINE], worktree=self._worktree))


def standing(task: ListedTask, many: int, line: str = "", *, worktree: bool = False) -> ListedTaskChanged:
    """Where one of so many tasks stands."""
    return ListedTaskChanged(
        task.name,
        task.state,
        task.steps,
        task.tokens,
        task.cost,
        line,
        task.number,
        many,
        task.session_id,
        task.branch,
        task.error,
        worktree,
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
