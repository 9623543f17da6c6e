"""The schema's history: ordered steps, each from one version to the next, with a backup before it.

A step is never changed once it was released; what `tables.py` needs anew is a new step at the end.
"""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from crushpy.storage.records import StorageError

APPLICATION_ID = 0x63727079
"""Marks the file as ours: "crpy" in ASCII."""

_FIRST = """
CREATE TABLE session (
    id TEXT NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL,
    parent_id TEXT REFERENCES session (id) ON DELETE SET NULL,
    kind TEXT NOT NULL,
    generation INTEGER NOT NULL,
    title TEXT NOT NULL,
    cwd TEXT NOT NULL,
    model TEXT NOT NULL,
    compaction TEXT NOT NULL,
    system TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    updated_at FLOAT NOT NULL,
    ended_at FLOAT,
    end_reason TEXT NOT NULL,
    message_count INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    todos TEXT NOT NULL,
    grants TEXT NOT NULL
);
CREATE INDEX session_by_root ON session (root_id);
CREATE INDEX session_by_parent ON session (parent_id);
CREATE INDEX session_by_folder ON session (cwd, updated_at);

CREATE TABLE message (
    number INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    model TEXT NOT NULL,
    usage TEXT,
    finish TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    UNIQUE (session_id, seq)
);

CREATE TABLE tool_run (
    number INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    args TEXT NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT,
    is_error BOOLEAN,
    result_id TEXT
);
CREATE INDEX tool_run_by_call ON tool_run (session_id, message_id, call_id);
CREATE INDEX tool_run_open ON tool_run (session_id, call_id) WHERE ended_at IS NULL;

CREATE TABLE boundary (
    id TEXT NOT NULL PRIMARY KEY,
    parent_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    child_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    "trigger" TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    tail TEXT NOT NULL,
    summary_source TEXT NOT NULL,
    summary_model TEXT NOT NULL,
    template_name TEXT NOT NULL,
    template_hash TEXT NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after INTEGER NOT NULL,
    reported_after INTEGER,
    cost FLOAT NOT NULL,
    seconds FLOAT NOT NULL,
    truncated_chars INTEGER NOT NULL,
    problem TEXT NOT NULL,
    coverage TEXT NOT NULL,
    undone_at FLOAT
);
CREATE INDEX boundary_by_parent ON boundary (parent_id);
CREATE INDEX boundary_by_child ON boundary (child_id);

CREATE TABLE task_result (
    id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    raw TEXT NOT NULL,
    context_summary TEXT,
    summary_model TEXT NOT NULL,
    cost FLOAT NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE INDEX task_result_by_session ON task_result (session_id);

CREATE TABLE cut (
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    head INTEGER NOT NULL,
    tail INTEGER NOT NULL,
    PRIMARY KEY (session_id, message_id)
);

CREATE TABLE lease (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    process INTEGER NOT NULL,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    heartbeat FLOAT NOT NULL
);

CREATE VIRTUAL TABLE message_text USING fts5 (text, tokenize = 'trigram')
"""

_LEDGER = """
CREATE TABLE ledger (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    facts TEXT NOT NULL
);
ALTER TABLE boundary ADD COLUMN lineage TEXT NOT NULL DEFAULT '[0,0]'
"""

_EDITS = """
ALTER TABLE cut ADD COLUMN kind TEXT NOT NULL DEFAULT 'cut';
ALTER TABLE cut ADD COLUMN made_after TEXT NOT NULL DEFAULT ''
"""

_IMPORTS = """
ALTER TABLE session ADD COLUMN imported TEXT NOT NULL DEFAULT '';
CREATE TABLE import_record (
    root_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    foreign_id TEXT NOT NULL,
    file TEXT NOT NULL,
    tip_id TEXT NOT NULL,
    last_message TEXT NOT NULL,
    last_piece TEXT NOT NULL,
    open_calls TEXT NOT NULL,
    imported_at FLOAT NOT NULL
);
CREATE INDEX import_by_source ON import_record (source, foreign_id)
"""

_PREPARED = """
ALTER TABLE boundary ADD COLUMN prepared BOOLEAN NOT NULL DEFAULT 0;
ALTER TABLE boundary ADD COLUMN moment TEXT NOT NULL DEFAULT '';
ALTER TABLE boundary ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0
"""

_PINS = """
CREATE TABLE pin (
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (root_id, number)
);
DELETE FROM message_text
"""
"""The index is made anew, without what `recall` answered."""

_BREAKER = "ALTER TABLE session ADD COLUMN breaker TEXT NOT NULL DEFAULT '{}'"

_CONVERSATIONS = """
CREATE TABLE conversation (
    root_id TEXT NOT NULL PRIMARY KEY,
    tip_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    cwd TEXT NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    updated_at FLOAT NOT NULL,
    is_open BOOLEAN NOT NULL,
    generations INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    imported TEXT NOT NULL
);
CREATE INDEX conversation_by_folder ON conversation (cwd, updated_at);
CREATE INDEX conversation_by_time ON conversation (updated_at);
CREATE INDEX conversation_by_tip ON conversation (tip_id);
INSERT INTO conversation
    WITH ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY root_id ORDER BY ended_at IS NOT NULL, updated_at DESC, generation DESC
        ) AS place FROM session WHERE kind != 'task'
    )
    SELECT root_id, id, cwd, title, model, updated_at,
        ended_at IS NULL, generation + 1, message_count, imported
    FROM ranked WHERE place = 1;
WITH RECURSIVE up (tip, id, parent_id, message_count) AS (
    SELECT session.id, session.id, session.parent_id, session.message_count
    FROM session JOIN conversation ON conversation.tip_id = session.id
    UNION SELECT up.tip, session.id, session.parent_id, session.message_count
    FROM session JOIN up ON session.id = up.parent_id
)
UPDATE conversation SET messages = total
    FROM (SELECT tip, sum(message_count) AS total FROM up GROUP BY tip) AS led
    WHERE led.tip = conversation.tip_id
"""

_MODE = "ALTER TABLE session ADD COLUMN mode TEXT NOT NULL DEFAULT ''"

_INDEX = """
DROP TABLE message_text;
CREATE VIRTUAL TABLE message_words USING fts5 (
    text, content = '', tokenize = 'unicode61 remove_diacritics 0'
);
CREATE VIRTUAL TABLE message_parts USING fts5 (text, content = '', tokenize = 'trigram', detail = none);
CREATE TABLE index_queue (
    number INTEGER NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE
);
INSERT INTO index_queue SELECT number FROM message;
CREATE TABLE chore (
    name TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL
);
CREATE INDEX session_deleted ON session (kind) WHERE kind = 'deleted'
"""

_FILE_CHANGES = """
CREATE TABLE file_change (
    number INTEGER NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_number INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT,
    batch TEXT NOT NULL,
    reverses TEXT NOT NULL,
    machine TEXT NOT NULL,
    host TEXT NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE INDEX file_change_by_root ON file_change (root_id);
CREATE INDEX file_change_by_session ON file_change (session_id);
CREATE INDEX file_change_by_batch ON file_change (batch)
"""

_AUDIT = """
CREATE TABLE audit (
    root_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at FLOAT NOT NULL,
    session_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (root_id, number)
);
CREATE TABLE audit_end (
    root_id TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL
);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END
"""

_MARKS = """
CREATE TABLE mark (
    number INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    after TEXT NOT NULL,
    early BOOLEAN NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    hint TEXT NOT NULL,
    at FLOAT NOT NULL
);
CREATE INDEX mark_by_session ON mark (session_id);
CREATE INDEX mark_by_message ON mark (after)
"""

_DRAFTS = """
CREATE TABLE draft (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    model TEXT NOT NULL,
    usage TEXT,
    finish TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    created_at FLOAT NOT NULL
);
"""

_PROMPTS = """
CREATE TABLE system_prompt (
    hash TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
);
ALTER TABLE session ADD COLUMN system_hash TEXT NOT NULL DEFAULT '';
CREATE INDEX session_by_prompt ON session (system_hash) WHERE system_hash != '';
INSERT INTO chore SELECT 'prompts', '' WHERE EXISTS (SELECT 1 FROM session)
"""
"""Prompts of old sessions are moved later, a few at a time."""

_TASK_LISTS = """
CREATE TABLE task_list (
    root_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    orders TEXT NOT NULL,
    parallel INTEGER NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE TABLE listed_task (
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    session_id TEXT NOT NULL,
    result_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    changes TEXT NOT NULL,
    error TEXT NOT NULL,
    steps INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    PRIMARY KEY (root_id, number)
)
"""

_FACTS = """
CREATE TABLE message_fact (
    number INTEGER NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
    facts TEXT NOT NULL
)
"""
"""Those of messages that are there are read when a boundary needs them."""

_OF_SERVERS = ""
"""Where only a server's tables change."""

STEPS: list[str] = [
    _FIRST,
    _LEDGER,
    _EDITS,
    _IMPORTS,
    _PREPARED,
    _PINS,
    _BREAKER,
    _CONVERSATIONS,
    _MODE,
    _INDEX,
    _FILE_CHANGES,
    _AUDIT,
    _MARKS,
    _DRAFTS,
    _PROMPTS,
    _TASK_LISTS,
    _FACTS,
    _OF_SERVERS,
]
"""Step n (counted from 0) leads from version n to n + 1: SQL statements, with no semicolon in their texts."""


def refuse_foreign(connection: sqlite3.Connection, file: Path) -> None:
    """Raises where the file was written by a newer crushpy or by another program. Changes nothing."""
    connection.execute("BEGIN")  # all three of one moment: another process may be making the tables
    try:
        version = _version(connection)
        mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if mark != APPLICATION_ID and tables:
        raise StorageError(
            f"the database {file} belongs to another program",
            "Set database_url (or CRUSHPY_HOME) to a file of crushpy's own. Nothing was changed.",
        )
    if version > len(STEPS):
        raise StorageError(
            f"the database {file} has version {version}, but this crushpy knows versions up to {len(STEPS)}",
            "It was written by a newer crushpy: update this one, or set CRUSHPY_HOME to another folder. "
            "Nothing was changed.",
        )


def upgrade(connection: sqlite3.Connection, file: Path) -> None:
    """Brings the database to the newest version. One that is just being made needs no backup."""
    new = _version(connection) == 0
    while _version(connection) < len(STEPS):
        _step(connection, file, back_up=not new)


def _step(connection: sqlite3.Connection, file: Path, *, back_up: bool) -> None:
    """Goes one version up, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # again: another process may have been quicker
        if version < len(STEPS):
            if version > 0 and back_up and STEPS[version]:
                _back_up(file, version)
            for statement in _statements(STEPS[version]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(step: str) -> Iterator[str]:
    """Each statement of a step; that of a trigger holds others."""
    begun = ""
    for piece in step.split(";"):
        begun += f"{piece};"
        if sqlite3.complete_statement(begun):
            yield begun
            begun = ""


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _back_up(file: Path, version: int) -> None:
    """Copies the database as it is now. The caller holds the write lock, so nothing changes meanwhile."""
    backup = file.with_name(f"{file.name}.bak-{version}")
    if backup.exists():
        backup = file.with_name(f"{backup.name}-{time.time_ns()}")
    backup.touch(mode=0o600, exist_ok=False)
    source, target = sqlite3.connect(file), sqlite3.connect(backup)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
