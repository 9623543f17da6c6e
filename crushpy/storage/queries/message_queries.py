"""Messages, their facts, drafts and tool calls; the queue of the full-text index; deletion in steps,
maintenance, and whole tables for copying.
"""

from pathlib import Path

from sqlalchemy import Boolean, Float, Integer, func, literal, text, tuple_
from sqlmodel import SQLModel, and_, delete, insert, or_, select, update

from crushpy.storage import tables as t
from crushpy.storage.queries import (
    Forms,
    insert_or_ignore,
    is_one_of,
    is_one_of_numbers,
    limited,
    next_number,
    p,
    row,
    upsert,
)

_M, _S, _R, _Q = t.MessageTable, t.SessionTable, t.ToolRunTable, t.IndexQueueTable
_of_session = _M.session_id == p("session")
_up_to = and_(_of_session, _M.number <= p("last", Integer))

# --- messages

insert_message = insert(_M).values(seq=next_number(_M.seq, _M.session_id == p("of_session")))
list_messages = select(_M).where(_of_session).order_by(_M.seq)
list_messages_up_to = select(_M).where(_up_to).order_by(_M.seq)
_last = select(func.max(_M.seq)).where(_of_session).scalar_subquery()
list_message_ends = (
    select(_M)
    .where(_of_session, or_(_M.seq <= p("many", Integer), _M.seq > _last - p("many", Integer)))
    .order_by(_M.seq)
)
list_messages_by_id = select(_M).where(is_one_of(_M.id, "ids"))
get_message = select(_M).where(_M.id == p("message"))
# Prompts of a task are the model's. A longer one (mostly pasted) is not worth offering again.
list_prompts = limited(
    select(_M.parts)
    .where(
        _M.session_id.in_(
            limited(
                select(_S.id)
                .where(_S.cwd == p("folder"), _S.kind.not_in(["task", "deleted"]))
                .order_by(_S.updated_at.desc()),
                "sessions",
            )
        ),
        _M.role == "user",
        func.length(_M.parts, type_=Integer) <= 20_000,
    )
    .order_by(_M.created_at.desc(), _M.number.desc())
)
find_messages_from = limited(
    row(
        "MessagePlace",
        select(_M.id.label("message_id"), _M.session_id, _M.number)
        .where(_M.id >= p("start"), _M.id < p("end"))
        .order_by(_M.id),
    )
)
find_message_number = select(_M.number).where(_M.id == p("message"))
find_message_numbers = row("MessageNumberRow", select(_M.id, _M.number).where(is_one_of(_M.id, "ids")))
find_last_number = select(func.max(_M.number))
find_first_number_of_session = select(func.min(_M.number)).where(_of_session)
find_last_number_before = select(func.max(_M.number)).where(_of_session, _M.created_at <= p("moment", Float))
find_last_number_among = select(func.max(_M.number)).where(_of_session, is_one_of(_M.id, "ids"))
find_last_message_id = limited(select(_M.id).where(_of_session).order_by(_M.seq.desc()))
list_usage_up_to = select(_M.usage).where(_up_to, _M.usage.is_not(None)).order_by(_M.seq)

# --- facts

add_facts = upsert(
    t.MessageFactTable, "number", source=select(_M.number, p("facts")).where(_M.id == p("message"))
)
list_facts_up_to = (
    select(_M.id, _M.number, t.MessageFactTable.facts)
    .select_from(_M)
    .outerjoin(t.MessageFactTable, t.MessageFactTable.number == _M.number)
    .where(_up_to)
    .order_by(_M.seq)
)

# --- drafts

save_draft = upsert(t.DraftTable, "session_id")
delete_draft = delete(t.DraftTable).where(t.DraftTable.session_id == p("session"))
find_draft = select(t.DraftTable).where(t.DraftTable.session_id == p("session"))

# --- tool calls

insert_tool_run = insert(_R)
list_open_calls = select(_R.call_id).where(_R.session_id == p("session"), _R.ended_at.is_(None))
# If a provider repeats an id, the result belongs to the run that was started last.
end_tool_run = (
    update(_R)
    .where(
        _R.number
        == select(func.max(_R.number))
        .where(_R.session_id == p("session"), _R.call_id == p("call"), _R.ended_at.is_(None))
        .scalar_subquery()
    )
    .values(ended_at=p("now", Float), is_error=p("failed", Boolean), result_id=p("answer"))
)

# --- the queue

_waiting = select(_M).join(_Q, _Q.number == _M.number).order_by(_Q.number.desc())
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
list_candidates = row(
    "CandidateRow",
    select(*_M.__table__.columns, _S.root_id, _S.title)
    .join(_S, _S.id == _M.session_id)
    .where(is_one_of_numbers(_M.number), _S.kind != "deleted"),
)


def _list_tasks(pairs: str):
    """Tasks and branches of the sessions that led to one, started before each was left, and all their
    descendants."""
    return text(Path(__file__).with_name("tasks_of_lineage.sql").read_text().strip().format(pairs=pairs))


list_tasks_of_lineage = Forms(
    _list_tasks("SELECT key, value FROM json_each(:reach)"),
    _list_tasks("SELECT key, CAST(value AS bigint) FROM json_each_text(CAST(:reach AS json))"),
)

# --- deletion

mark_deleted = update(_S).where(_S.root_id == p("root"), _S.kind != "deleted").values(kind=literal("deleted"))
delete_leases_of_conversation = delete(t.LeaseTable).where(
    t.LeaseTable.session_id.in_(select(_S.id).where(_S.root_id == p("root")))
)
find_deleted_session = limited(select(_S.id).where(_S.kind == "deleted"))
list_first_messages = limited(select(_M).where(_M.session_id == p("session")).order_by(_M.seq))
lock_messages = select(_M.number).where(is_one_of_numbers(_M.number)).with_for_update()
delete_messages = delete(_M).where(is_one_of_numbers(_M.number))
delete_tool_runs = delete(_R).where(
    _R.number.in_(limited(select(_R.number).where(_R.session_id == p("session"))))
)
delete_session = delete(_S).where(_S.id == p("session"))

# --- what is left of a damaged file

list_lost_sessions = row(
    "LostSessionRow",
    select(_M.session_id.label("id"), func.min(_M.created_at).label("began"))
    .add_columns(func.max(_M.created_at).label("ended"), func.max(_M.model).label("model"))
    .where(_M.session_id.not_in(select(_S.id)))
    .group_by(_M.session_id),
)
count_messages_again = update(_S).values(
    message_count=select(func.count()).where(_M.session_id == _S.id).scalar_subquery()
)
queue_all_messages = insert(_Q).from_select(["number"], select(_M.number))

# --- maintenance

_W = t.MaintenanceTable
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


def _after(table):
    keys = list(table.primary_key)
    return tuple_(*keys) > tuple_(*(p(f"after_{key.name}", key.type) for key in keys))


def _by_key(table):
    return row("", select(table).order_by(*table.primary_key))


count_rows = {table.name: select(func.count()).select_from(table) for table in _tables}
page_first_rows = {table.name: limited(_by_key(table)) for table in _tables}
page_rows = {table.name: limited(_by_key(table).where(_after(table))) for table in _tables}
save_row = {table.name: upsert(table, *(key.name for key in table.primary_key)) for table in _tables}
save_row["audit"] = insert_or_ignore(t.AuditTable)  # PostgreSQL's trigger refuses an upsert
list_message_sessions = row(
    "MessageSessionRow", select(_M.number, _M.session_id).where(is_one_of_numbers(_M.number))
)
