"""Who looks on when a tool call is decided and run: where all that is recorded of a call comes in."""

from collections.abc import Sequence
from typing import Protocol

from crushpy.access import Access
from crushpy.engine.approvals import Ruling
from crushpy.messages import CallDecision, Data, ToolCall
from crushpy.tools.base import Outcome


class WatchedCall(Data, frozen=True):
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


class CallWatch(Protocol):
    """Awaited in order, so keep it short; what may take long is begun here and waited for later.

    Raising `ToolError` or `StorageError` in the first two stops the call before it has done anything.
    """

    async def ruled(self, watched: WatchedCall, ruling: Ruling) -> None:
        """It was decided whether the call may run."""
        ...

    async def begins(self, watched: WatchedCall, ruling: Ruling) -> None:
        """It may, and is about to."""
        ...

    async def ended(self, watched: WatchedCall, outcome: Outcome | None) -> None:
        """It ran; None where it was interrupted or failed inside crushpy."""
        ...


class CallWatches:
    """All that look on, as one."""

    def __init__(self, watches: Sequence[CallWatch] = ()) -> None:
        self._watches = tuple(watches)

    async def ruled(self, watched: WatchedCall, ruling: Ruling) -> None:
        for watch in self._watches:
            await watch.ruled(watched, ruling)

    async def begins(self, watched: WatchedCall, ruling: Ruling) -> None:
        for watch in self._watches:
            await watch.begins(watched, ruling)

    async def ended(self, watched: WatchedCall, outcome: Outcome | None) -> None:
        for watch in self._watches:
            await watch.ended(watched, outcome)
