"""Who looks on when a tool call is run."""

from collections.abc import Sequence
from typing import Protocol

from crushpy.core.access import Access
from crushpy.core.messages import CallDecision, Data, ToolCall
from crushpy.engine.approvals import Ruling
from crushpy.tools.base import Outcome


class ObservedCall(Data, frozen=True):
    """One call on its way."""

    session_id: str
    message_id: str
    """The reply that asked for it."""
    call: ToolCall
    accesses: tuple[Access, ...]
    decision: CallDecision
    """What was decided, as the call's result will say it."""
    task: str = ""
    """The call for which a sub-agent works; empty for the main agent."""

    @property
    def only_reads(self) -> bool:
        """The rules let it run, and it does nothing but look at files: cut off, it has done no harm."""
        return (
            self.decision.verdict == "allowed"
            and self.decision.by != "user"
            and bool(self.accesses)
            and all(access.kind == "path" and not access.writes for access in self.accesses)
        )


class CallObserver(Protocol):
    """Awaited in order, so keep it short; what may take long is begun here and waited for later.

    Raising `ToolError` or `StorageError` in the first stops the call before it has done anything.
    """

    async def begins(self, watched: ObservedCall, ruling: Ruling) -> None:
        """It may run, and is about to."""
        ...

    async def ended(self, watched: ObservedCall, outcome: Outcome | None) -> None:
        """It ran; None where it was interrupted or failed inside crushpy."""
        ...


class CallObservers:
    """All that look on, as one."""

    def __init__(self, watches: Sequence[CallObserver] = ()) -> None:
        self._watches = tuple(watches)

    async def begins(self, watched: ObservedCall, ruling: Ruling) -> None:
        for watch in self._watches:
            await watch.begins(watched, ruling)

    async def ended(self, watched: ObservedCall, outcome: Outcome | None) -> None:
        for watch in self._watches:
            await watch.ended(watched, outcome)
