"""The protocols of what is notified of tool calls, and of what adds to their results."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from crushpy.core.access import Access
from crushpy.core.messages import CallDecision, Data, Message, ToolCall
from crushpy.engine.approvals import Ruling
from crushpy.tools.base import AnyTool, Outcome

log = logging.getLogger(__name__)


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

    async def begins(self, watched: ObservedCall, ruling: Ruling) -> None: ...

    async def ended(self, watched: ObservedCall, outcome: Outcome | None) -> None:
        """The call ran; `outcome` is None if it was interrupted or failed inside crushpy."""
        ...


ResultAddition = Callable[[Outcome, ObservedCall], Awaitable[Outcome]]
"""Returns an outcome with what the model should know beside it, such as rules and diagnostics."""


class ResultAdditions:
    """Makes the additions to the results of one agent. One that fails is logged and left out."""

    def __init__(self, additions: Sequence[ResultAddition], tools: Iterable[AnyTool]) -> None:
        self._additions, self._observed = additions, dict[str, ObservedCall]()
        self._editing = {tool.name for tool in tools if tool.access.kind == "path" and tool.access.writes}

    def observe(self, observed: ObservedCall) -> ObservedCall:
        """Remembers a call that was decided about: only those gain something."""
        self._observed[observed.call.id] = observed
        return observed

    async def add(self, outcome: Outcome, call_id: str, message: Message) -> Outcome:
        """`message`: the reply that asked for the call."""
        if (observed := self._observed.pop(call_id, None)) is None:
            return outcome
        later = message.calls[[call.id for call in message.calls].index(observed.call.id) + 1 :]
        more_edits = any(call.name in self._editing for call in later)
        try:
            for add_to in self._additions:
                outcome = await add_to(outcome, msgspec.structs.replace(observed, more_edits=more_edits))
        except Exception:
            log.exception("adding to the result of %s failed", observed.call.name)
        return outcome
