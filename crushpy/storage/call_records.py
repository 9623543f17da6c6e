"""What there is to store of a tool call on its way: decided, begun, answered. Light."""

from collections.abc import Sequence

from crushpy.core.messages import Data, Message, ToolCall
from crushpy.storage.audit_records import AuditEntry


class CallDecided(Data, frozen=True):
    """What was decided about a call, for the audit."""

    root_id: str
    entries: Sequence[AuditEntry]


class CallBegun(Data, frozen=True):
    """A call of an assistant message is about to run."""

    session_id: str
    message_id: str
    call: ToolCall


class CallStart(Data, frozen=True):
    """How a call began that changes nothing: stored with its answer, since nothing can have come of it."""

    message_id: str
    call: ToolCall
    at: float
    decided: CallDecided


class CallAnswered(Data, frozen=True):
    """The tool message that a call ended with."""

    session_id: str
    message: Message
    start: CallStart | None = None
    """None where its start was stored before."""
    facts: Data | None = None
    """What evidence has of it; None where nobody read that yet."""


CallWrite = CallDecided | CallBegun | CallAnswered


def written_to(write: CallWrite) -> str:
    """The session, or the conversation, that a write locks."""
    return write.root_id if isinstance(write, CallDecided) else write.session_id
