"""The protocols of what is notified of tool calls, and of what adds to their results."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from crushpy.core.access import Access
from crushpy.core.messages import CallDecision, Data, ToolCall
from crushpy.tools.base import Outcome


class ObservedCall(Data, frozen=True):
    """A call that was decided about."""

    session_id: str
    message_id: str
    """The reply that asked for it."""
    call: ToolCall
    accesses: tuple[Access, ...]
    decision: CallDecision
    """As the result of the call will state it."""
    task: str = ""
    """The call that a sub-agent works for; empty for the main agent."""
    more_edits: bool = False
    """A later call of the same reply may change files."""

    @property
    def only_reads(self) -> bool:
        """The rules allow it and it only reads files: interrupting it leaves no effects."""
        return (
            self.decision.verdict == "allowed"
            and self.decision.by != "user"
            and bool(self.accesses)
            and all(access.kind == "path" and not access.writes for access in self.accesses)
        )


class CallObserver(Protocol):
    """Methods are awaited in order and must be short; start long work here and wait for it later.

    Raising `ToolError` or `StorageError` in `begins` prevents the call.
    """

    async def begins(self, watched: ObservedCall) -> None: ...

    async def ended(self, watched: ObservedCall, outcome: Outcome | None) -> None:
        """The call ran; `outcome` is None if it was interrupted or failed inside crushpy."""
        ...


ResultAddition = Callable[[Outcome, ObservedCall], Awaitable[Outcome]]
"""Returns an outcome with what the model should know beside it, such as rules and diagnostics."""
