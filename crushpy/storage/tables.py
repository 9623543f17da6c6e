"""Every table, index and constraint of both databases, as SQLModel classes. What SQLAlchemy cannot express,
triggers and the full-text index, is in `schema_sqlite.sql` and `schema_postgresql.sql`.

Importing this costs half a second, so nothing does at run time except an upgrade. `bin/compile-sql` renders
it, with the statements in `queries/`, into `generated/`.
"""

import re
from functools import partial

from sqlalchemy import BigInteger, Float, Index, Integer, LargeBinary, Sequence, Text, UniqueConstraint, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

TEXT = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared byte by byte in both databases."""
INTEGER = Integer().with_variant(BigInteger(), "postgresql")
FLOAT = Float().with_variant(postgresql.DOUBLE_PRECISION(), "postgresql")
POSTGRES_ONLY = {"info": {"only": "postgresql"}}


def _column(sa_type, default: str | float | None = None, **options):
    """Defaults are the server's: one of Python's would become a required parameter of every insert."""
    spelled = text(f"'{default}'" if isinstance(default, str) else str(default))
    extra = {} if default is None else {"sa_column_kwargs": {"server_default": spelled}}
    return Field(sa_type=sa_type, **extra, **options)


_text, _integer, _float = (partial(_column, kind) for kind in (TEXT, INTEGER, FLOAT))
_json = _text


def _session_key(**options):
    return _text(foreign_key="session.id", ondelete="CASCADE", **options)


def _message_number():
    return _integer(primary_key=True, foreign_key="message.number", ondelete="CASCADE")


def _where(condition: str):
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class Table(SQLModel):
    """A class `TaskResultTable` is the table `task_result`."""

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Table")).lower()


class SessionTable(Table, table=True):
    """One context window's worth of messages."""

    __table_args__ = (
        Index("session_by_root", "root_id"),
        Index("session_by_parent", "parent_id"),
        Index("session_by_folder", "cwd", "updated_at"),
        Index("session_by_prompt", "system_hash", **_where("system_hash != ''")),
        Index("session_deleted", "kind", **_where("kind = 'deleted'")),
    )

    id: str = _text(primary_key=True)
    root_id: str = _text()
    parent_id: str | None = _text(foreign_key="session.id", ondelete="SET NULL")
    kind: str = _text()
    """root, continuation, branch, task or fork; deleted while its rows are being removed."""
    generation: int = _integer()
    title: str = _text()
    cwd: str = _text()
    model: str = _text()
    compaction: str = _text()
    system: str = _text("")
    """The prompt of a session that version 18 stored before prompts had a table of their own."""
    created_at: float = _float()
    updated_at: float = _float()
    ended_at: float | None = _float()
    end_reason: str = _text()
    message_count: int = _integer()
    input_tokens: int = _integer()
    output_tokens: int = _integer()
    cache_read_tokens: int = _integer()
    cache_write_tokens: int = _integer()
    cost: float = _float()
    todos: str = _json()
    grants: str = _json()
    imported: str = _text("")
    """The agent that the conversation was imported from; empty for our own."""
    breaker: str = _text("{}")
    """JSON: whether compaction still helps."""
    mode: str = _text("")
    """ask, edits or plan, if one was chosen for it."""
    budget: str = _text("")
    """What the conversation may spend, as the user wrote it."""
    system_hash: str = _text("")
    """Names its prompt in `system_prompt`."""


class SystemPromptTable(Table, table=True):
    """A system prompt, once for all sessions that were started with the same text."""

    hash: str = _text(primary_key=True)
    text: str = _text()


class ConversationTable(Table, table=True):
    """One conversation as lists show it: derived from its sessions, in the transaction that changes them."""

    __table_args__ = (
        Index("conversation_by_folder", "cwd", "updated_at"),
        Index("conversation_by_time", "updated_at"),
        Index("conversation_by_tip", "tip_id"),
    )

    root_id: str = _text(primary_key=True)
    tip_id: str = _session_key()
    cwd: str = _text()
    title: str = _text()
    model: str = _text()
    updated_at: float = _float()
    is_open: bool
    """False if all its sessions have ended."""
    generations: int = _integer()
    messages: int = _integer()
    """Of all sessions that lead to the tip."""
    imported: str = _text()


class MessageTable(Table, table=True):
    """Append-only: no statement of ours changes a stored message."""

    __table_args__ = (UniqueConstraint("session_id", "seq"),)

    number: int | None = _integer(primary_key=True)
    """Never reused while the row exists, so that a search index can point at it."""
    id: str = _text(unique=True)
    session_id: str = _session_key()
    seq: int = _integer()
    """1, 2, 3, ... within its session."""
    role: str = _text()
    parts: str = _json()
    model: str = _text()
    usage: str | None = _json()
    finish: str = _text()
    tokens: int = _integer()
    created_at: float = _float()


class MessageFactTable(Table, table=True):
    """The facts of a message, for evidence. Rows are added when they are first needed."""

    number: int = _message_number()
    facts: str = _json()


class IndexQueueTable(Table, table=True):
    """A message that is not in the full-text index yet."""

    number: int = _message_number()


class MaintenanceTable(Table, table=True):
    """Pending work on the database itself, continued by any process that is idle."""

    name: str = _text(primary_key=True)
    state: str = _text()


class ToolRunTable(Table, table=True):
    """One tool call: the intent, and later its end. Call ids may repeat, even within a message."""

    __table_args__ = (
        Index("tool_run_by_call", "session_id", "message_id", "call_id"),
        Index("tool_run_open", "session_id", "call_id", **_where("ended_at IS NULL")),
    )

    number: int | None = _integer(primary_key=True)
    session_id: str = _session_key()
    message_id: str = _text()
    """The assistant message that contains the call."""
    call_id: str = _text()
    name: str = _text()
    args: str = _json()
    started_at: float = _float()
    ended_at: float | None = _float()
    is_error: bool | None
    result_id: str | None = _text()
    """The tool message with its result."""


class BoundaryTable(Table, table=True):
    """The moment one session ended and its child opened. The fields are those of `StoredBoundary`."""

    __table_args__ = (Index("boundary_by_parent", "parent_id"), Index("boundary_by_child", "child_id"))

    id: str = _text(primary_key=True)
    parent_id: str = _session_key()
    child_id: str = _session_key()
    trigger: str = _text()
    created_at: float = _float()
    tail: str = _json()
    summary_source: str = _text()
    summary_model: str = _text()
    template: str = _text()
    template_hash: str = _text()
    tokens_before: int = _integer()
    tokens_after: int = _integer()
    reported_after: int | None = _integer()
    cost: float = _float()
    seconds: float = _float()
    truncated_chars: int = _integer()
    problem: str = _text()
    facts: str = _json()
    undone_at: float | None = _float()
    lineage: str = _json("[0,0]")
    prepared: bool = Field(sa_column_kwargs={"server_default": text("false")})
    moment: str = _text("")
    waited_ms: int = _integer(0)
    threshold: float = _float(0.0)


class LedgerTable(Table, table=True):
    """The facts of all sessions before this one, as its evidence needs them."""

    session_id: str = _session_key(primary_key=True)
    facts: str = _json()


class ImportRecordTable(Table, table=True):
    """The source of an imported conversation, and how far it was read."""

    __table_args__ = (Index("import_by_source", "source", "foreign_id"),)

    root_id: str = _session_key(primary_key=True)
    source: str = _text()
    foreign_id: str = _text()
    file: str = _text()
    tip_id: str = _text()
    last_message: str = _text()
    """The last message that was imported."""
    last_piece: str = _text()
    """The same in the other agent's format."""
    folder: str = _text()
    """Where it was imported, and is listed beside the conversations of that folder."""
    imported_at: float = _float()


class TaskResultTable(Table, table=True):
    """The result of a task, and the short form its caller may have received instead."""

    __table_args__ = (Index("task_result_by_session", "session_id"),)

    id: str = _text(primary_key=True)
    session_id: str = _session_key()
    raw: str = _text()
    context_summary: str | None = _text()
    summary_model: str = _text()
    cost: float = _float()
    created_at: float = _float()


class MessageOverrideTable(Table, table=True):
    """How the requests of a session show one message. The message itself is never changed."""

    session_id: str = _session_key(primary_key=True)
    message_id: str = _text(primary_key=True)
    head: int = _integer()
    tail: int = _integer()
    kind: str = _text("shorten")
    """As in `MessageOverride`."""
    made_after: str = _text("")
    """The last message of the session when it was made."""
    text: str = _text("")
    """Of a renewed seed: the seed, as JSON."""


class ContextStatusTable(Table, table=True):
    """A context status as it was sent: it stays in later requests to models that bind their thinking."""

    session_id: str = _session_key(primary_key=True)
    message_id: str = _text(primary_key=True)
    """The message that it follows."""
    text: str = _text()
    tool_changes: str = _text("")
    """JSON; empty if the tools did not change."""


class PinTable(Table, table=True):
    """Text that the user wants carried across every boundary of a conversation."""

    root_id: str = _session_key(primary_key=True)
    number: int = _integer(primary_key=True, sa_column_kwargs={"autoincrement": False})
    kind: str = _text()
    """text, file or message."""
    text: str = _text()
    source: str = _text()
    """The file's path, or the message's id."""
    created_at: float = _float()


class FileChangeTable(Table, table=True):
    """The effect of one call, or one restoration, on one file. The bytes are kept beside the database."""

    __table_args__ = (
        Index("file_change_by_root", "root_id"),
        Index("file_change_by_session", "session_id"),
        Index("file_change_by_batch", "batch"),
    )

    number: int | None = _integer(primary_key=True)
    root_id: str = _session_key()
    session_id: str = _session_key()
    message_number: int = _integer()
    """The message it belongs to."""
    call_id: str = _text()
    source: str = _text()
    """The tool that made it; undo, redo or rewind."""
    path: str = _text()
    before: str = _json()
    after: str | None = _text()
    """JSON; NULL while it is being made."""
    batch: str = _text()
    reverses: str = _text()
    """Of a redo: the batch it reverses."""
    machine: str = _text()
    host: str = _text()
    created_at: float = _float()


class TimelineNoteTable(Table, table=True):
    """An event between messages, for people: an interruption, an error, a job that ended."""

    __table_args__ = (
        Index("timeline_note_by_session", "session_id"),
        Index("timeline_note_by_message", "after"),
    )

    number: int | None = _integer(primary_key=True)
    session_id: str = _session_key()
    after: str = _text()
    """The message it came after."""
    early: bool
    """It came before the calls of that message were shown."""
    kind: str = _text()
    """info, warning or error."""
    text: str = _text()
    hint: str = _text()
    at: float = _float()


class AuditTable(Table, table=True):
    """Decisions and changes. Append-only, and kept after its conversation is deleted: no foreign keys."""

    root_id: str = _text(primary_key=True)
    number: int = _integer(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """1, 2, 3, ... within its conversation."""
    kind: str = _text()
    """decision, change or deleted."""
    at: float = _float()
    session_id: str = _text()
    call_id: str = _text()
    body: str = _json()


class DraftTable(Table, table=True):
    """A reply that is still being received."""

    session_id: str = _session_key(primary_key=True)
    id: str = _text()
    role: str = _text()
    parts: str = _text()
    model: str = _text()
    usage: str | None = _text()
    finish: str = _text()
    tokens: int = _integer()
    created_at: float = _float()


class TaskListTable(Table, table=True):
    """A list of tasks that a conversation works through."""

    root_id: str = _session_key(primary_key=True)
    orders: str = _text()
    """JSON: the tasks as they were read."""
    parallel: int = _integer()
    created_at: float = _float()


class ListedTaskTable(Table, table=True):
    """The state of one task of a list."""

    root_id: str = _session_key(primary_key=True)
    number: int = _integer(primary_key=True, sa_column_kwargs={"autoincrement": False})
    name: str = _text()
    state: str = _text()
    session_id: str = _text()
    """The session that worked on it last."""
    result_id: str = _text()
    branch: str = _text()
    """The branch with its changes, if it had a worktree of its own."""
    changes: str = _text()
    """Those changes as a list of files and a diff."""
    error: str = _text()
    steps: int = _integer()
    tokens: int = _integer()
    cost: float = _float()


class LeaseTable(Table, table=True):
    """The process that may write to a session."""

    session_id: str = _session_key(primary_key=True)
    process: int = _integer()
    started: str = _text()
    """When that process started: process ids are reused."""
    host: str = _text()
    place: str = _text("")
    """On a server: the machine, boot and container in which the process id is valid."""
    heartbeat: float = _float()
    token: int = _integer(0)
    """On a server: the fencing token, from the sequence `lease_token`."""


class WriterTable(Table, table=True):
    """On a server: the last transaction of a connection, to learn whether it was committed."""

    __table_args__ = POSTGRES_ONLY

    name: str = _text(primary_key=True)
    number: int = _integer()
    at: float = _float()


class OutputTable(Table, table=True):
    """On a server: whole outputs of tools, so that the printed path can be viewed on every machine."""

    __table_args__ = POSTGRES_ONLY

    root_id: str = _session_key(primary_key=True)
    name: str = _text(primary_key=True)
    piece: int = _integer(primary_key=True, sa_column_kwargs={"autoincrement": False})
    data: bytes = Field(sa_type=LargeBinary)


class FleetTaskTable(Table, table=True):
    """On a server: what a fleet knows about one task of a list beside its state."""

    __table_args__ = POSTGRES_ONLY

    root_id: str = _session_key(primary_key=True)
    number: int = _integer(primary_key=True, sa_column_kwargs={"autoincrement": False})
    token: int = _integer(0)
    """Of the worker's claim, from the sequence `lease_token`; 0: no worker has it."""
    worker: str = _text("")
    """The worker that has or had it last."""
    deaths: str = _json("[]")
    """Attempts that ended without a result, in words."""
    queued: bool = Field(sa_column_kwargs={"server_default": text("false")})
    """A job for it was deferred."""
    stuck: str = _text("")
    """What no worker has."""
    stuck_since: float = _float(0.0)
    line: str = _text("")
    """Its last activity."""
    question: str = _text("")
    """JSON: the approval it waits for."""
    answer: str = _text("")
    inbox: str = _json("[]")
    """Prompts for its next step."""
    stopped: bool = Field(sa_column_kwargs={"server_default": text("false")})


class FleetWorkerTable(Table, table=True):
    """On a server: a worker, alive while its heartbeat is recent."""

    __table_args__ = POSTGRES_ONLY

    name: str = _text(primary_key=True)
    host: str = _text()
    version: str = _text()
    labels: str = _json()
    slots: int = _integer()
    lacks: str = _json("[]")
    """Models that it cannot serve, as far as known."""
    heartbeat: float = _float()
    draining: bool = Field(sa_column_kwargs={"server_default": text("false")})


lease_token = Sequence("lease_token", metadata=SQLModel.metadata)
