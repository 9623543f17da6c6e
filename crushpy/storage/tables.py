# pyright: basic
"""The tables, as SQLModel sees them. Importing this costs half a second: only what is seldom done does it.

Copies and imports build their statements from it. `sqlite/migrations.py` holds the same
tables as SQL, step by step; tests compare the two.
"""

from sqlalchemy import Float, Index, Table, Text, UniqueConstraint, text
from sqlmodel import Field, SQLModel

_OF_SESSION = {"foreign_key": "session.id", "ondelete": "CASCADE", "sa_type": Text}


class SessionRow(SQLModel, table=True):
    __tablename__ = "session"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("session_by_root", "root_id"),
        Index("session_by_parent", "parent_id"),
        Index("session_by_folder", "cwd", "updated_at"),
        Index("session_by_prompt", "system_hash", sqlite_where=text("system_hash != ''")),
        Index("session_deleted", "kind", sqlite_where=text("kind = 'deleted'")),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    root_id: str = Field(sa_type=Text)
    parent_id: str | None = Field(foreign_key="session.id", ondelete="SET NULL", sa_type=Text)
    kind: str = Field(sa_type=Text)
    generation: int
    title: str = Field(sa_type=Text)
    cwd: str = Field(sa_type=Text)
    model: str = Field(sa_type=Text)
    compaction: str = Field(sa_type=Text)
    system: str = Field(sa_type=Text)
    created_at: float = Field(sa_type=Float)
    updated_at: float = Field(sa_type=Float)
    ended_at: float | None = Field(sa_type=Float)
    end_reason: str = Field(sa_type=Text)
    message_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: float = Field(sa_type=Float)
    todos: str = Field(sa_type=Text)
    """JSON."""
    grants: str = Field(sa_type=Text)
    """JSON."""
    imported: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("''")})
    """The agent that the conversation was brought over from; empty for our own."""
    breaker: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("'{}'")})
    """JSON: whether fresh starts still help."""
    mode: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("''")})
    """ask, edits or plan, where one was chosen for it."""
    system_hash: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("''")})
    """Names its prompt in `system_prompt`; `system` is empty then."""


class SystemPromptRow(SQLModel, table=True):
    """A system prompt, once for all sessions that were begun with the same."""

    __tablename__ = "system_prompt"  # pyright: ignore[reportAssignmentType]

    hash: str = Field(primary_key=True, sa_type=Text)
    text: str = Field(sa_type=Text)


class ConversationRow(SQLModel, table=True):
    """One conversation as lists show it: made from its sessions, in the transaction that changes them."""

    __tablename__ = "conversation"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("conversation_by_folder", "cwd", "updated_at"),
        Index("conversation_by_time", "updated_at"),
        Index("conversation_by_tip", "tip_id"),
    )

    root_id: str = Field(primary_key=True, sa_type=Text)
    tip_id: str = Field(**_OF_SESSION)
    cwd: str = Field(sa_type=Text)
    title: str = Field(sa_type=Text)
    model: str = Field(sa_type=Text)
    updated_at: float = Field(sa_type=Float)
    is_open: bool
    """False where all its sessions have ended."""
    generations: int
    messages: int
    """Of all sessions that led to the tip."""
    imported: str = Field(sa_type=Text)


class MessageRow(SQLModel, table=True):
    """Append-only: no statement of ours changes a stored message."""

    __tablename__ = "message"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (UniqueConstraint("session_id", "seq"),)

    number: int | None = Field(primary_key=True)
    """Keeps its value for good, so that a search index can point at it."""
    id: str = Field(unique=True, sa_type=Text)
    session_id: str = Field(**_OF_SESSION)
    seq: int
    """1, 2, 3, ... within its session."""
    role: str = Field(sa_type=Text)
    parts: str = Field(sa_type=Text)
    """JSON."""
    model: str = Field(sa_type=Text)
    usage: str | None = Field(sa_type=Text)
    """JSON."""
    finish: str = Field(sa_type=Text)
    tokens: int
    created_at: float = Field(sa_type=Float)


class FactRow(SQLModel, table=True):
    """The facts of a message, for evidence. Every message has some, or will when they are needed."""

    __tablename__ = "message_fact"  # pyright: ignore[reportAssignmentType]

    number: int | None = Field(primary_key=True, foreign_key="message.number", ondelete="CASCADE")
    facts: str = Field(sa_type=Text)
    """JSON."""


class QueueRow(SQLModel, table=True):
    """A message that is not in the full-text index yet."""

    __tablename__ = "index_queue"  # pyright: ignore[reportAssignmentType]

    number: int | None = Field(primary_key=True, foreign_key="message.number", ondelete="CASCADE")


class ChoreRow(SQLModel, table=True):
    """Work on the database itself that whoever has time goes on with."""

    __tablename__ = "chore"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True, sa_type=Text)
    state: str = Field(sa_type=Text)


class ToolRunRow(SQLModel, table=True):
    """One call that was begun: the intent, and later its end. Call ids may repeat, even in a message."""

    __tablename__ = "tool_run"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("tool_run_by_call", "session_id", "message_id", "call_id"),
        Index("tool_run_open", "session_id", "call_id", sqlite_where=text("ended_at IS NULL")),
    )

    number: int | None = Field(primary_key=True)
    session_id: str = Field(**_OF_SESSION)
    message_id: str = Field(sa_type=Text)
    """The assistant message that asked for it."""
    call_id: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    args: str = Field(sa_type=Text)
    """JSON."""
    started_at: float = Field(sa_type=Float)
    ended_at: float | None = Field(sa_type=Float)
    is_error: bool | None
    result_id: str | None = Field(sa_type=Text)
    """The tool message that answers it."""


class BoundaryRow(SQLModel, table=True):
    """The moment one session ended and its child opened."""

    __tablename__ = "boundary"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("boundary_by_parent", "parent_id"), Index("boundary_by_child", "child_id"))

    id: str = Field(primary_key=True, sa_type=Text)
    parent_id: str = Field(**_OF_SESSION)
    child_id: str = Field(**_OF_SESSION)
    trigger: str = Field(sa_type=Text)
    """agent, auto, manual, overflow or fallback."""
    created_at: float = Field(sa_type=Float)
    tail: str = Field(sa_type=Text)
    """JSON: ids of the parent's messages that the child carries on verbatim."""
    summary_source: str = Field(sa_type=Text)
    summary_model: str = Field(sa_type=Text)
    template_name: str = Field(sa_type=Text)
    template_hash: str = Field(sa_type=Text)
    tokens_before: int
    tokens_after: int
    reported_after: int | None
    """What the child's first reply said it used."""
    cost: float = Field(sa_type=Float)
    seconds: float = Field(sa_type=Float)
    truncated_chars: int
    """Characters of tool results that did not reach the summariser."""
    problem: str = Field(sa_type=Text)
    """Why there is no summary, or why not the first model's."""
    coverage: str = Field(sa_type=Text)
    """JSON: for each kind of fact how many there were, how many the prose has, how many were carried."""
    undone_at: float | None = Field(sa_type=Float)
    lineage: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("'[0,0]'")})
    """JSON: how many facts there were since the root, and how many of them were carried."""
    prepared: bool = Field(sa_column_kwargs={"server_default": text("0")})
    moment: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("''")})
    waited_ms: int = Field(sa_column_kwargs={"server_default": text("0")})


class LedgerRow(SQLModel, table=True):
    """The facts of all sessions before this one, as its evidence needs them."""

    __tablename__ = "ledger"  # pyright: ignore[reportAssignmentType]

    session_id: str = Field(primary_key=True, **_OF_SESSION)
    facts: str = Field(sa_type=Text)
    """JSON."""


class ImportRow(SQLModel, table=True):
    """Where an imported conversation came from, and how far it was read."""

    __tablename__ = "import_record"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("import_by_source", "source", "foreign_id"),)

    root_id: str = Field(primary_key=True, **_OF_SESSION)
    source: str = Field(sa_type=Text)
    foreign_id: str = Field(sa_type=Text)
    file: str = Field(sa_type=Text)
    tip_id: str = Field(sa_type=Text)
    last_message: str = Field(sa_type=Text)
    """The last message that was imported."""
    last_piece: str = Field(sa_type=Text)
    """The same in the other agent's words."""
    open_calls: str = Field(sa_type=Text)
    """JSON: calls at the end that had no result yet."""
    imported_at: float = Field(sa_type=Float)


class TaskResultRow(SQLModel, table=True):
    """What a task gave back, whole, and the short form its caller may have got instead."""

    __tablename__ = "task_result"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("task_result_by_session", "session_id"),)

    id: str = Field(primary_key=True, sa_type=Text)
    session_id: str = Field(**_OF_SESSION)
    raw: str = Field(sa_type=Text)
    context_summary: str | None = Field(sa_type=Text)
    summary_model: str = Field(sa_type=Text)
    cost: float = Field(sa_type=Float)
    created_at: float = Field(sa_type=Float)


class CutRow(SQLModel, table=True):
    """How the requests of a session show one message. The message itself is never changed."""

    __tablename__ = "cut"  # pyright: ignore[reportAssignmentType]

    session_id: str = Field(primary_key=True, **_OF_SESSION)
    message_id: str = Field(primary_key=True, sa_type=Text)
    head: int
    tail: int
    kind: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("'cut'")})
    """cut, drop or restore."""
    made_after: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("''")})
    """The last message there was when it was made."""


class PinRow(SQLModel, table=True):
    """What the user wants carried over every boundary of a conversation."""

    __tablename__ = "pin"  # pyright: ignore[reportAssignmentType]

    root_id: str = Field(primary_key=True, **_OF_SESSION)
    number: int = Field(primary_key=True)
    kind: str = Field(sa_type=Text)
    """text, file or message."""
    text: str = Field(sa_type=Text)
    source: str = Field(sa_type=Text)
    """The file's path, or the message's id."""
    created_at: float = Field(sa_type=Float)


class FileChangeRow(SQLModel, table=True):
    """What one call, or one restoration, did to one file. The bytes are kept beside the database."""

    __tablename__ = "file_change"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("file_change_by_root", "root_id"),
        Index("file_change_by_session", "session_id"),
        Index("file_change_by_batch", "batch"),
    )

    number: int | None = Field(primary_key=True)
    root_id: str = Field(**_OF_SESSION)
    session_id: str = Field(**_OF_SESSION)
    message_number: int
    """The message it belongs to."""
    call_id: str = Field(sa_type=Text)
    source: str = Field(sa_type=Text)
    """The tool that made it; undo, redo or rewind."""
    path: str = Field(sa_type=Text)
    before: str = Field(sa_type=Text)
    """JSON."""
    after: str | None = Field(sa_type=Text)
    """JSON; NULL while it is being made."""
    batch: str = Field(sa_type=Text)
    reverses: str = Field(sa_type=Text)
    """Of a redo: the batch it takes back."""
    machine: str = Field(sa_type=Text)
    host: str = Field(sa_type=Text)
    created_at: float = Field(sa_type=Float)


class MarkRow(SQLModel, table=True):
    """What happened between messages, for people: an interruption, an error, a job that ended."""

    __tablename__ = "mark"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("mark_by_session", "session_id"), Index("mark_by_message", "after"))

    number: int | None = Field(primary_key=True)
    session_id: str = Field(**_OF_SESSION)
    after: str = Field(sa_type=Text)
    """The message it came after."""
    early: bool
    """It came before the calls of that message were told."""
    kind: str = Field(sa_type=Text)
    """info, warning or error."""
    text: str = Field(sa_type=Text)
    hint: str = Field(sa_type=Text)
    at: float = Field(sa_type=Float)


class AuditRow(SQLModel, table=True):
    """What was decided or changed. Only ever added to, and it outlives its conversation: no foreign keys."""

    __tablename__ = "audit"  # pyright: ignore[reportAssignmentType]

    root_id: str = Field(primary_key=True, sa_type=Text)
    number: int = Field(primary_key=True)
    """1, 2, 3, ... within its conversation."""
    kind: str = Field(sa_type=Text)
    """decision, change or deleted."""
    at: float = Field(sa_type=Float)
    session_id: str = Field(sa_type=Text)
    call_id: str = Field(sa_type=Text)
    body: str = Field(sa_type=Text)
    """JSON."""
    previous: str = Field(sa_type=Text)
    hash: str = Field(sa_type=Text)


class AuditEndRow(SQLModel, table=True):
    """Where the audit of a conversation ends, so that records missing at its end are noticed."""

    __tablename__ = "audit_end"  # pyright: ignore[reportAssignmentType]

    root_id: str = Field(primary_key=True, sa_type=Text)
    number: int
    hash: str = Field(sa_type=Text)


class DraftRow(SQLModel, table=True):
    """What has come of a reply that is not stored yet."""

    __tablename__ = "draft"  # pyright: ignore[reportAssignmentType]

    session_id: str = Field(primary_key=True, **_OF_SESSION)
    id: str = Field(sa_type=Text)
    role: str = Field(sa_type=Text)
    parts: str = Field(sa_type=Text)
    model: str = Field(sa_type=Text)
    usage: str | None = Field(sa_type=Text)
    finish: str = Field(sa_type=Text)
    tokens: int
    created_at: float = Field(sa_type=Float)


class TaskListRow(SQLModel, table=True):
    """A list of tasks that a conversation works through."""

    __tablename__ = "task_list"  # pyright: ignore[reportAssignmentType]

    root_id: str = Field(primary_key=True, **_OF_SESSION)
    orders: str = Field(sa_type=Text)
    """JSON: what is to be done, as it was read once."""
    parallel: int
    created_at: float = Field(sa_type=Float)


class ListedTaskRow(SQLModel, table=True):
    """How one task of a list stands."""

    __tablename__ = "listed_task"  # pyright: ignore[reportAssignmentType]

    root_id: str = Field(primary_key=True, **_OF_SESSION)
    number: int = Field(primary_key=True)
    name: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    session_id: str = Field(sa_type=Text)
    """Where it was worked on last."""
    result_id: str = Field(sa_type=Text)
    branch: str = Field(sa_type=Text)
    """What it changed, where it had a worktree of its own."""
    changes: str = Field(sa_type=Text)
    """That as a list of files and a diff."""
    error: str = Field(sa_type=Text)
    steps: int
    tokens: int
    cost: float = Field(sa_type=Float)


class LeaseRow(SQLModel, table=True):
    """Which process may write to a session."""

    __tablename__ = "lease"  # pyright: ignore[reportAssignmentType]

    session_id: str = Field(primary_key=True, **_OF_SESSION)
    process: int
    started: str = Field(sa_type=Text)
    """When that process started: process ids are used again."""
    host: str = Field(sa_type=Text)
    heartbeat: float = Field(sa_type=Float)


sessions: Table = SQLModel.metadata.tables["session"]
messages: Table = SQLModel.metadata.tables["message"]
imports: Table = SQLModel.metadata.tables["import_record"]
