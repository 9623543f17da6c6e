"""Holds a recorded run to what the docstrings of `crushpy.core.events` promise about order."""

from collections.abc import Sequence

from crushpy.core.events import (
    ApprovalDone,
    ApprovalNeeded,
    BoundaryCommitted,
    BranchOpened,
    BranchReturned,
    Compacting,
    Error,
    Event,
    MessageCommitted,
    PromptCommitted,
    PromptQueued,
    Result,
    Retry,
    SessionOpened,
    TaskProgress,
    TextDelta,
    ThinkingDelta,
    TodosChanged,
    ToolCalled,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    UsageReported,
)
from crushpy.security.sanitize import to_json
from support.event_json import event_from_json


def assert_in_order(events: Sequence[Event]) -> None:
    """Fails with the first event that stands where it must not. The run must have come to rest."""
    _Order(events).check()


class _Order:
    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.opened = False
        self.in_turn = False
        self.after_error = False
        self.committed = False  # this step's message is stored
        self.streamed: list[str] = []
        self.calls: dict[str, str] = {}  # id -> called, started, approving
        self.finished: set[str] = set()
        self.child_expected = False
        self.queued: set[str] = set()  # prompts that wait
        self.unanswered = True  # nothing of a reply has come since the prompt
        self.returns = False  # the prompt of the turn that ended may be queued again
        self.compacting = False  # a compaction that the user asked for has begun
        self.unsent = False  # an error kept the prompt from being stored

    def check(self) -> None:
        for index, event in enumerate(self.events):
            assert event_from_json(to_json(event)) == event, f"{event} does not survive JSON"
            where = f"event {index}, {event}"
            if self.child_expected:
                assert isinstance(event, SessionOpened), (
                    f"{where}: a boundary is followed by its child's session"
                )
            if self.unsent:
                assert isinstance(event, TurnEnded), f"{where}: no turn was open, so it ends at once"
                self.unsent = False
            self.step(event, where)
            if isinstance(event, Result):
                assert index == len(self.events) - 1, f"{where}: nothing comes after the result"
        assert not self.in_turn, "the run ended inside a turn"
        assert not self.calls, f"calls without a result: {self.calls}"

    def step(self, event: Event, where: str) -> None:
        match event:
            case SessionOpened():
                self.opened, self.child_expected = True, False
            case PromptCommitted() if event.steers:
                assert self.in_turn and not self.calls, f"{where}: not between two steps"
                assert event.message_id in self.queued, f"{where}: it did not wait"
                self.queued.remove(event.message_id)
            case PromptCommitted():
                assert self.opened, f"{where}: before any session"
                assert not self.in_turn, f"{where}: inside a turn"
                self.in_turn, self.after_error, self.committed = True, False, False
                self.unanswered, self.returns, self.streamed = True, False, []
                self.queued.discard(event.message_id)
            case TextDelta() | ThinkingDelta():
                assert self.in_turn, f"{where}: outside a turn"
                assert not self.calls, f"{where}: while calls are open"
                self.committed = False
                if isinstance(event, TextDelta):
                    self.streamed.append(event.text)
            case Compacting():
                self.compacting = True
            case Retry():
                assert self.in_turn or self.compacting, f"{where}: outside a turn"
                self.streamed = []
            case MessageCommitted():
                assert self.in_turn, f"{where}: outside a turn"
                assert event.text == "".join(self.streamed), f"{where}: differs from what was streamed"
                self.committed, self.unanswered, self.streamed = True, False, []
            case UsageReported():
                assert self.committed, f"{where}: before its message"
            case ToolCalled():
                assert self.committed, f"{where}: before its message"
                assert event.id not in self.calls and event.id not in self.finished, f"{where}: id used twice"
                self.calls[event.id] = "called"
            case ApprovalNeeded() if event.name in ("view", "bash") and event.id not in self.calls:
                self.calls[event.id] = "of a task"  # a file that the prompt mentions, or a command in it
            case ApprovalNeeded() if event.name in ("hooks", "limit", "form") or "pin" in event.args:
                self.calls[event.id] = "of a task"  # it belongs to no call
            case ApprovalNeeded() if event.task:
                assert self.calls.get(event.task) == "started", f"{where}: that task does not run"
                self.calls[event.id] = "of a task"
            case ApprovalDone() if self.calls.get(event.id) == "of a task":
                del self.calls[event.id]
            case ApprovalNeeded():
                assert self.calls.get(event.id) == "called", f"{where}: no such call waits"
                self.calls[event.id] = "approving"
            case ApprovalDone():
                assert self.calls.get(event.id) == "approving", f"{where}: nothing was asked"
                self.calls[event.id] = "called"
            case ToolStarted():
                assert self.calls.get(event.id) == "called", f"{where}: not called, or still asking"
                self.calls[event.id] = "started"
            case ToolOutput():
                assert self.calls.get(event.id) == "started", f"{where}: not running"
            case ToolFinished():
                assert self.calls.pop(event.id, "") in ("called", "started"), f"{where}: no such call"
                self.finished.add(event.id)
            case TaskProgress():
                assert self.calls.get(event.id) == "started", f"{where}: that task does not run"
            case TodosChanged():
                assert self.finished, f"{where}: before the result that changed them"
            case BranchReturned():
                assert not self.calls, f"{where}: while calls are open"
            case BoundaryCommitted() | BranchOpened():
                assert not self.calls, f"{where}: while calls are open"
                self.child_expected, self.compacting = True, False
            case Error():
                self.unsent = not self.in_turn
                self.in_turn = self.after_error = True
            case TurnEnded() if event.status == "interrupted" and not self.in_turn:
                self.returns = True  # hooks kept the prompt from being committed
            case TurnEnded():
                assert self.in_turn, f"{where}: no turn was open"
                # Where a result could not be stored, none is said: the turn ends with that error.
                assert not self.calls or self.after_error, f"{where}: calls without a result: {self.calls}"
                self.calls.clear()
                assert (event.status == "error") == self.after_error, f"{where}: status and error disagree"
                self.returns = event.status == "interrupted" and self.unanswered
                self.in_turn = False
            case PromptQueued():
                idle = not (self.in_turn or self.returns or self.after_error)
                assert not idle, f"{where}: queued while idle"
                self.queued.add(event.id)
            case _:
                pass
