"""What storage takes and gives: frozen data and its own error. Light: knows neither SQLModel nor SQLite."""

from typing import Any, Literal

import msgspec

from crushpy.core.access import Mode
from crushpy.core.boundary import EndReason, SessionKind, StoredBoundary
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data, Message, MessageOverride, Todo, ToolCall, Usage
from crushpy.storage.generated import rows

EVERYTHING = 2**63 - 1
"""Above the number of every message."""


ConversationEntry = rows.ConversationEntry
"""One conversation as a list shows it: the session at its tip, with the messages of all that led to it."""
TaskResult = rows.TaskResult
"""What a task gave back. Its id is that of the message that holds it; `cost` is that of its summary."""
ListedTask = rows.ListedTask
"""How one task of a list stands: waiting, running, done, failed, limit, interrupted or skipped."""
ImportRecord = rows.ImportRecord
"""Where an imported conversation came from, and how far it was read."""


class StorageError(CrushpyError):
    """The database cannot be opened, read or written. Names the file, the reason and the way out."""


class DatabaseLost(StorageError):
    """The file was deleted, replaced, overwritten or damaged while it was open. Nothing can be stored."""


class CannotWriteNow(StorageError):
    """Others write, the disk is full, or the file only to be read: work that can wait is not done."""


class BreakerState(Data, frozen=True):
    """Whether compaction still helps a conversation, judged by the usage reported after each boundary."""

    in_vain: int = 0
    """Boundaries in a row that did not get below the threshold."""
    unjudged: bool = False
    """A boundary was made, and nothing was reported since."""
    stopped_at: int | None = None
    """Tokens in use when it was seen that boundaries do not help; None while they may."""
    told: bool = False
    """The user knows that the fixed part nearly fills the window."""


class SessionInfo(Data, frozen=True, omit_defaults=False):
    """One session without its messages."""

    id: str
    root_id: str
    """The first session of its conversation; its own id if it is the first."""
    parent_id: str | None = None
    kind: SessionKind = "root"
    generation: int = 0
    """0 for a root, one more for each continuation."""
    title: str = ""
    cwd: str = ""
    model: str = ""
    compaction: str = ""
    system: str = ""
    """The system prompt as first sent: the same bytes for the whole session."""
    created_at: float = 0.0
    updated_at: float = 0.0
    """When its last message was stored."""
    ended_at: float | None = None
    end_reason: EndReason = ""
    message_count: int = 0
    usage: Usage = Usage()
    """All its model calls together."""
    todos: tuple[Todo, ...] = ()
    grants: tuple[str, ...] = ()
    """Permission rules granted for this conversation."""
    imported: str = ""
    """The agent that the conversation was brought over from; empty for our own."""
    breaker: BreakerState = BreakerState()
    mode: Mode | Literal[""] = ""
    """The mode chosen for this conversation; empty if the settings decide."""
    budget: str = ""
    """What the conversation may spend, as the user wrote it; empty if the settings decide."""


class TasksDone(Data, frozen=True):
    """How far a list of tasks is."""

    done: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.done} of {self.tasks} tasks done"


class StoredTaskList(Data, frozen=True):
    """A list of tasks with how far it is."""

    orders: str
    """JSON: the tasks as they were read."""
    parallel: int
    tasks: tuple[ListedTask, ...]


class Carried(Data, frozen=True):
    """What a session has beside its own messages."""

    tail: tuple[Message, ...] = ()
    overrides: tuple[MessageOverride, ...] = ()
    held: bool = False
    """A boundary after this session was undone."""


class ImportedSession(msgspec.Struct, frozen=True):
    """A part of another agent's session as it is stored here."""

    info: SessionInfo
    boundary: StoredBoundary | None = None
    """The one that opened it; its seed is the first message."""
    messages: list[Message] = msgspec.field(default_factory=list[Message])


class ImportedConversation(Data, frozen=True):
    """A session of another agent; its compactions divide it into several sessions."""

    title: str
    sessions: tuple[ImportedSession, ...]
    record: ImportRecord


class SearchHit(Data, frozen=True, omit_defaults=False):
    """A message that a search found."""

    message_id: str
    session_id: str
    root_id: str
    title: str
    role: str
    created_at: float
    snippet: str
    state: str = ""
    """How requests show it, if the user edited it: dropped or shortened."""


class UsageSum(Data, frozen=True):
    """What calls of one model used on one day in one conversation."""

    day: str
    """2026-01-31, in local time."""
    model: str
    cwd: str
    root_id: str
    title: str
    usage: Usage


class SessionBusy(UsageError):
    """Another process writes to this session."""

    def __init__(self, session_id: str, process: str) -> None:
        super().__init__(
            f"session {session_id} is in use by another crushpy ({process})",
            "Continue there, end it, or work on a fork of your own with --fork. "
            "`crushpy sessions show` reads it without writing.",
        )
        self.session_id = session_id


AuditKind = Literal["decision", "change", "hook", "deleted"]


class AuditEntry(Data, frozen=True):
    """Something to record. What it says must be redacted already."""

    kind: AuditKind
    body: dict[str, Any]
    """Plain JSON."""
    session_id: str = ""
    call_id: str = ""


class CallStart(Data, frozen=True):
    """The start of a call that changes nothing: stored with its result, since it has no effects."""

    message_id: str
    call: ToolCall
    at: float
    root_id: str
    decided: AuditEntry


Finding = tuple[Literal["ok", "warn", "fail"], str, str]
"""What `crushpy doctor` says about a server: its state in a word, a text, and what to do."""
