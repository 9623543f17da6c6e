"""The queue of the full-text index, deletion in steps, maintenance, and whole tables for copying."""

from sqlalchemy import Integer, func, literal, text, tuple_
from sqlmodel import SQLModel, delete, select, update

from crushpy.storage.queries import (
    Forms,
    insert_or_ignore,
    is_one_of,
    is_one_of_numbers,
    limited,
    p,
    row,
    upsert,
)
from crushpy.storage.tables import (
    AuditTable,
    IndexQueueTable,
    LeaseTable,
    MaintenanceTable,
    MessageTable,
    SessionTable,
    ToolRunTable,
)

_M, _S, _Q = MessageTable, SessionTable, IndexQueueTable

# --- the queue

_waiting = row(
    "MessageSizeRow",
    select(_M.number, func.length(_M.parts, type_=Integer).label("size"))
    .join(_Q, _Q.number == _M.number)
    .order_by(_Q.number.desc()),
)
list_unindexed = limited(_waiting)
list_unindexed_of_sessions = limited(_waiting.where(is_one_of(_M.session_id, "sessions")))
count_unindexed = select(func.count()).select_from(_Q)
is_any_unindexed = limited(
    select(literal(1).label("found"))
    .select_from(_M)
    .join(_Q, _Q.number == _M.number)
    .where(is_one_of(_M.session_id, "sessions"))
)
dequeue_messages = delete(_Q).where(is_one_of_numbers(_Q.number)).returning(_Q.number)
queue_message = insert_or_ignore(_Q, ["number"], select(_M.number).where(_M.id == p("message")))
queue_session = insert_or_ignore(_Q, ["number"], select(_M.number).where(_M.session_id == p("session")))
list_messages_by_number = select(_M).where(is_one_of_numbers(_M.number))
list_candidates = row(
    "CandidateRow",
    select(*_M.__table__.columns, _S.root_id, _S.title)
    .join(_S, _S.id == _M.session_id)
    .where(is_one_of_numbers(_M.number), _S.kind != "deleted"),
)


def _list_tasks(pairs: str):
    """Tasks of the sessions that led to one, started before each was left, and all their descendants."""
    return text(f"""
WITH RECURSIVE reach (id, last) AS MATERIALIZED ({pairs}),
task (id) AS (
    SELECT session.id FROM session JOIN reach ON session.parent_id = reach.id
    WHERE session.kind = 'task'
    AND coalesce((SELECT min(number) FROM message WHERE session_id = session.id), 0) <= reach.last
    UNION SELECT session.id FROM session JOIN task ON session.parent_id = task.id
)
SELECT id FROM task""")  # noqa: S608


list_tasks_of_lineage = Forms(
    _list_tasks("SELECT key, value FROM json_each(:reach)"),
    _list_tasks("SELECT key, CAST(value AS bigint) FROM json_each_text(CAST(:reach AS json))"),
)

# --- deletion

mark_deleted = update(_S).where(_S.root_id == p("root"), _S.kind != "deleted").values(kind=literal("deleted"))
delete_leases_of_conversation = delete(LeaseTable).where(
    LeaseTable.session_id.in_(select(_S.id).where(_S.root_id == p("root")))
)
find_deleted_session = limited(select(_S.id).where(_S.kind == "deleted"))
list_message_sizes = limited(
    row(
        "MessageSizeRow",
        select(_M.number, func.length(_M.parts, type_=Integer).label("size"))
        .where(_M.session_id == p("session"))
        .order_by(_M.seq),
    )
)
lock_messages = select(_M.number).where(is_one_of_numbers(_M.number)).with_for_update()
delete_messages = delete(_M).where(is_one_of_numbers(_M.number))
delete_tool_runs = delete(ToolRunTable).where(
    ToolRunTable.number.in_(
        limited(select(ToolRunTable.number).where(ToolRunTable.session_id == p("session")))
    )
)
delete_session = delete(_S).where(_S.id == p("session"))

# --- maintenance

_W = MaintenanceTable
find_maintenance = select(_W.state).where(_W.name == p("name"))
save_maintenance = upsert(_W, "name")
delete_maintenance = delete(_W).where(_W.name == p("work"))


# --- whole tables

# Not copied: leases, pending maintenance, the index queue, and tables of servers.
_NOT_COPIED = {"lease", "index_queue", "maintenance"}
_tables = [
    table
    for table in SQLModel.metadata.sorted_tables
    if table.name not in _NOT_COPIED and "only" not in table.info
]


def _place(table, start):
    keys = list(table.primary_key)
    return tuple_(*keys), tuple_(*(p(f"{start}_{key.name}", key.type) for key in keys))


def _within(table):
    key, first = _place(table, "first")
    return key >= first, key <= _place(table, "last")[1]


def _after(table):
    key, place = _place(table, "after")
    return key > place


def _by_key(table):
    return row("", select(table).order_by(*table.primary_key))


count_rows = {table.name: select(func.count()).select_from(table) for table in _tables}
page_first_rows = {table.name: limited(_by_key(table)) for table in _tables}
page_rows = {table.name: limited(_by_key(table).where(_after(table))) for table in _tables}
list_rows_within = {table.name: _by_key(table).where(*_within(table)) for table in _tables}
save_row = {table.name: upsert(table, *(key.name for key in table.primary_key)) for table in _tables}
save_row["audit"] = insert_or_ignore(AuditTable)  # PostgreSQL's trigger refuses an upsert
list_message_sessions = row(
    "MessageSessionRow",
    select(MessageTable.number, MessageTable.session_id).where(is_one_of_numbers(MessageTable.number)),
)
