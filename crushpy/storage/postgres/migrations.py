"""The schema's history on a server: ordered steps, each from one version to the next, under one lock.

Versions are those of `sqlite/migrations.py`: a step there has its counterpart here. A step is never changed
once it was released. Text is compared byte by byte (collation C), as SQLite does.
"""

from typing import TYPE_CHECKING, Any, LiteralString

from crushpy.storage.records import StorageError

if TYPE_CHECKING:
    import psycopg

SCHEMA = "crushpy"
"""Everything of ours lies in it: the rest of the database belongs to others."""
_LOCK = 0x63727079
"""The advisory lock of whoever makes or changes the tables."""
FIRST_VERSION = 14
"""The version that the first step leads to: servers came later than files."""

_FIRST = """
CREATE TABLE audit (
    root_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    call_id TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    previous TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (root_id, number)
);
CREATE TABLE audit_end (
    root_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    hash TEXT COLLATE "C" NOT NULL
);
CREATE TABLE chore (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    state TEXT COLLATE "C" NOT NULL
);
CREATE TABLE session (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    root_id TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C" REFERENCES session (id) ON DELETE SET NULL,
    kind TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    cwd TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    compaction TEXT COLLATE "C" NOT NULL,
    system TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION,
    end_reason TEXT COLLATE "C" NOT NULL,
    message_count BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    todos TEXT COLLATE "C" NOT NULL,
    grants TEXT COLLATE "C" NOT NULL,
    imported TEXT COLLATE "C" NOT NULL,
    breaker TEXT COLLATE "C" NOT NULL,
    mode TEXT COLLATE "C" NOT NULL
);
CREATE INDEX session_by_folder ON session (cwd, updated_at);
CREATE INDEX session_by_parent ON session (parent_id);
CREATE INDEX session_by_root ON session (root_id);
CREATE INDEX session_deleted ON session (kind) WHERE kind = 'deleted';
CREATE TABLE boundary (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    parent_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    child_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    "trigger" TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    tail TEXT COLLATE "C" NOT NULL,
    summary_source TEXT COLLATE "C" NOT NULL,
    summary_model TEXT COLLATE "C" NOT NULL,
    template_name TEXT COLLATE "C" NOT NULL,
    template_hash TEXT COLLATE "C" NOT NULL,
    tokens_before BIGINT NOT NULL,
    tokens_after BIGINT NOT NULL,
    reported_after BIGINT,
    cost DOUBLE PRECISION NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    truncated_chars BIGINT NOT NULL,
    problem TEXT COLLATE "C" NOT NULL,
    coverage TEXT COLLATE "C" NOT NULL,
    undone_at DOUBLE PRECISION,
    lineage TEXT COLLATE "C" NOT NULL,
    prepared BOOLEAN NOT NULL,
    moment TEXT COLLATE "C" NOT NULL,
    waited_ms BIGINT NOT NULL
);
CREATE INDEX boundary_by_child ON boundary (child_id);
CREATE INDEX boundary_by_parent ON boundary (parent_id);
CREATE TABLE conversation (
    root_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tip_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    cwd TEXT COLLATE "C" NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    is_open BOOLEAN NOT NULL,
    generations BIGINT NOT NULL,
    messages BIGINT NOT NULL,
    imported TEXT COLLATE "C" NOT NULL
);
CREATE INDEX conversation_by_folder ON conversation (cwd, updated_at);
CREATE INDEX conversation_by_time ON conversation (updated_at);
CREATE INDEX conversation_by_tip ON conversation (tip_id);
CREATE TABLE cut (
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT COLLATE "C" NOT NULL,
    head BIGINT NOT NULL,
    tail BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    made_after TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, message_id)
);
CREATE TABLE draft (
    session_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    id TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    parts TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    usage TEXT COLLATE "C",
    finish TEXT COLLATE "C" NOT NULL,
    tokens BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE file_change (
    number BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY,
    root_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_number BIGINT NOT NULL,
    call_id TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C" NOT NULL,
    after TEXT COLLATE "C",
    batch TEXT COLLATE "C" NOT NULL,
    reverses TEXT COLLATE "C" NOT NULL,
    machine TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX file_change_by_batch ON file_change (batch);
CREATE INDEX file_change_by_root ON file_change (root_id);
CREATE INDEX file_change_by_session ON file_change (session_id);
CREATE TABLE import_record (
    root_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    source TEXT COLLATE "C" NOT NULL,
    foreign_id TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    tip_id TEXT COLLATE "C" NOT NULL,
    last_message TEXT COLLATE "C" NOT NULL,
    last_piece TEXT COLLATE "C" NOT NULL,
    open_calls TEXT COLLATE "C" NOT NULL,
    imported_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX import_by_source ON import_record (source, foreign_id);
CREATE TABLE ledger (
    session_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    facts TEXT COLLATE "C" NOT NULL
);
CREATE TABLE mark (
    number BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    after TEXT COLLATE "C" NOT NULL,
    early BOOLEAN NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    text TEXT COLLATE "C" NOT NULL,
    hint TEXT COLLATE "C" NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE INDEX mark_by_message ON mark (after);
CREATE INDEX mark_by_session ON mark (session_id);
CREATE TABLE message (
    number BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    parts TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    usage TEXT COLLATE "C",
    finish TEXT COLLATE "C" NOT NULL,
    tokens BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    UNIQUE (session_id, seq)
);
CREATE TABLE pin (
    root_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    text TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (root_id, number)
);
CREATE TABLE task_result (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    raw TEXT COLLATE "C" NOT NULL,
    context_summary TEXT COLLATE "C",
    summary_model TEXT COLLATE "C" NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX task_result_by_session ON task_result (session_id);
CREATE TABLE tool_run (
    number BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT COLLATE "C" NOT NULL,
    call_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    args TEXT COLLATE "C" NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION,
    is_error BOOLEAN,
    result_id TEXT COLLATE "C"
);
CREATE INDEX tool_run_by_call ON tool_run (session_id, message_id, call_id);
CREATE INDEX tool_run_open ON tool_run (session_id, call_id) WHERE ended_at IS NULL;
CREATE TABLE index_queue (
    number BIGINT NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE
);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the audit is only added to'; END $$;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    EXECUTE FUNCTION refuse_change();
CREATE TABLE writer (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    at TIMESTAMPTZ NOT NULL
);
CREATE SEQUENCE lease_token;
CREATE TABLE lease (
    session_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    process BIGINT NOT NULL,
    started TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    heartbeat TIMESTAMPTZ NOT NULL,
    token BIGINT NOT NULL
);
CREATE TABLE message_words (
    number BIGINT NOT NULL REFERENCES message (number) ON DELETE CASCADE,
    piece BIGINT NOT NULL,
    words TSVECTOR NOT NULL,
    PRIMARY KEY (number, piece)
);
CREATE INDEX message_by_words ON message_words USING gin (words);
CREATE TABLE message_parts (
    number BIGINT NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
    parts TEXT COLLATE "C" NOT NULL
);
CREATE TABLE output (
    root_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    piece BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (root_id, name, piece)
);
"""

_PROMPTS = """
CREATE TABLE system_prompt (
    hash TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    text TEXT COLLATE "C" NOT NULL
);
ALTER TABLE session ADD COLUMN system_hash TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX session_by_prompt ON session (system_hash) WHERE system_hash != '';
INSERT INTO chore SELECT 'prompts', '' WHERE EXISTS (SELECT FROM session)
"""

_TASK_LISTS = """
CREATE TABLE task_list (
    root_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    orders TEXT COLLATE "C" NOT NULL,
    parallel BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE listed_task (
    root_id TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    result_id TEXT COLLATE "C" NOT NULL,
    branch TEXT COLLATE "C" NOT NULL,
    changes TEXT COLLATE "C" NOT NULL,
    error TEXT COLLATE "C" NOT NULL,
    steps BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (root_id, number)
)
"""

_FACTS = """
CREATE TABLE message_fact (
    number BIGINT NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
    facts TEXT COLLATE "C" NOT NULL
)
"""

# Made anew without a copy of the words in each message; all messages are put into it again, later.
_SMALL_INDEX = """
DROP TABLE message_parts;
DROP TABLE message_words;
CREATE TABLE message_words (
    number BIGINT NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
    words INT[] NOT NULL
);
ALTER TABLE message_words ALTER COLUMN words SET STORAGE EXTERNAL;
CREATE INDEX message_by_words ON message_words USING gin (words) WITH (gin_pending_list_limit = 256);
CREATE TABLE word (
    number BIGINT,
    deep BOOLEAN NOT NULL,
    text TEXT COLLATE "C" NOT NULL PRIMARY KEY
);
CREATE INDEX word_without_message ON word (text) WHERE number IS NULL;
CREATE INDEX word_deep ON word (text) WHERE deep;
DROP TABLE index_queue;
CREATE TABLE index_queue AS SELECT number FROM message;
ALTER TABLE index_queue ADD PRIMARY KEY (number);
ALTER TABLE index_queue ADD FOREIGN KEY (number) REFERENCES message (number) ON DELETE CASCADE
"""

STEPS: list[LiteralString] = [_FIRST, _PROMPTS, _TASK_LISTS, _FACTS, _SMALL_INDEX]
"""The first leads to FIRST_VERSION, each of the others one further."""
NEWEST = FIRST_VERSION + len(STEPS) - 1

_VERSION = "SELECT coalesce(max(version), 0) FROM crushpy.migration"
_READY = """
SELECT (SELECT max(version) FROM crushpy.migration),
    to_regclass('crushpy.word_by_part') IS NULL
        AND EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm'),
    (SELECT state FROM crushpy.chore WHERE name = 'copy')
"""
_STATE = """
SELECT to_regnamespace('crushpy') IS NOT NULL, to_regclass('crushpy.migration') IS NOT NULL,
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('crushpy')),
    EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm'),
    to_regclass('crushpy.word_by_part') IS NOT NULL
"""


def made_ready(connection: "psycopg.Connection[Any]", place: str) -> str | None:
    """Brings the schema to the newest version where it is not; where the copy comes from that was interrupted
    here, None where there is none. Mostly one question and its answer."""
    import psycopg

    try:
        row = connection.execute(_READY).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is not None and row[0] == NEWEST and not row[1]:
        return row[2]
    upgrade(connection, place)
    return unfinished_copy(connection)


def upgrade(connection: "psycopg.Connection[Any]", place: str) -> None:
    """Brings the schema to the newest version; several may try at once. Changes nothing of others'."""
    if _version(connection, place) == NEWEST and not _wants_index(connection):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = _version(connection, place)  # again: another process may have been quicker
        if version == 0:
            _make_schema(connection)
        for number in range(max(version - FIRST_VERSION + 1, 0), len(STEPS)):
            connection.execute(STEPS[number])
            connection.execute(
                "INSERT INTO crushpy.migration VALUES (%s, extract(epoch FROM clock_timestamp()))",
                (FIRST_VERSION + number,),
            )
        if version == 0:
            _add_trigrams(connection)
        if _wants_index(connection):
            connection.execute(
                "CREATE INDEX word_by_part ON crushpy.word USING gin (text gin_trgm_ops) "
                "WITH (gin_pending_list_limit = 256) WHERE NOT deep"
            )


def schema_version(connection: "psycopg.Connection[Any]") -> int:
    """0 where there is no schema of ours yet."""
    _, migrated, *_ = _state(connection)
    if not migrated:
        return 0
    row = connection.execute(_VERSION).fetchone()
    return row[0] if row else 0


def unfinished_copy(connection: "psycopg.Connection[Any]") -> str | None:
    """Where the copy comes from that was interrupted here; None where there is none."""
    row = connection.execute("SELECT state FROM crushpy.chore WHERE name = 'copy'").fetchone()
    return row[0] if row else None


def finds_parts_by_index(connection: "psycopg.Connection[Any]") -> bool:
    """False where the extension pg_trgm could not be made: parts of words are then looked for one by one."""
    return _state(connection)[4]


def _state(connection: "psycopg.Connection[Any]") -> tuple[bool, bool, bool, bool, bool]:
    row = connection.execute(_STATE).fetchone()
    assert row is not None
    return row  # pyright: ignore[reportReturnType]


def _version(connection: "psycopg.Connection[Any]", place: str) -> int:
    _, migrated, filled, *_ = _state(connection)
    if filled and not migrated:
        raise StorageError(
            f"the schema {SCHEMA} of {place} belongs to another program",
            "Name another database in database_url. Nothing was changed.",
        )
    version = schema_version(connection)
    if version > NEWEST:
        raise StorageError(
            f"{place} has version {version}, but this crushpy knows versions up to {NEWEST}",
            "It was written by a newer crushpy: update this one. Nothing was changed.",
        )
    return version


def _make_schema(connection: "psycopg.Connection[Any]") -> None:
    there, *_ = _state(connection)
    if not there:
        connection.execute("CREATE SCHEMA crushpy")
    connection.execute(
        "CREATE TABLE crushpy.migration (version BIGINT NOT NULL PRIMARY KEY, at DOUBLE PRECISION NOT NULL)"
    )


def _add_trigrams(connection: "psycopg.Connection[Any]") -> None:
    """Makes the extension where this role may; a search does without it, only more slowly."""
    import psycopg

    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        if connection.closed:
            raise
        import logging

        logging.getLogger(__name__).warning("pg_trgm: %s", error)


def _wants_index(connection: "psycopg.Connection[Any]") -> bool:
    _, _, _, extension, indexed = _state(connection)
    return extension and not indexed
