"""Timeline notes, the audit, tasks, file changes, imports, leases, and what only a server has."""

from sqlalchemy import Float, Integer, case, cast, func
from sqlalchemy.orm import aliased
from sqlmodel import delete, insert, or_, select, update

from crushpy.core.timeline_notes import TimelineNote
from crushpy.storage import tables as t
from crushpy.storage.queries import (
    Forms,
    insert_or_ignore,
    is_one_of,
    limited,
    new_token,
    next_number,
    now,
    p,
    read,
    row,
    upsert,
)

# --- timeline notes

_N = t.TimelineNoteTable
insert_note = insert(_N)
list_notes = (
    read(TimelineNote, _N)
    .where(or_(_N.session_id == p("session"), is_one_of(_N.after, "carried")))
    .order_by(_N.number)
)

# --- the audit

_A = t.AuditTable
insert_audit = insert(_A).values(number=next_number(_A.number, _A.root_id == p("of_root")))
list_audit = select(_A).where(_A.root_id == p("root")).order_by(_A.number)
list_audited = select(_A.root_id).where(_A.root_id >= p("start")).distinct().order_by(_A.root_id)

# --- leases, and what a connection to a server wrote last

_K, _W, _S = t.LeaseTable, t.WriterTable, t.SessionTable
_this_lease = _K.token == p("token", Integer)
find_lease = row(
    "LeaseRow",
    select(_K.process, _K.started, _K.host, _K.place, _K.token)
    .add_columns(cast(now() - _K.heartbeat, t.FLOAT).label("silent"))
    .where(_K.session_id == p("session")),
)
save_lease = upsert(_K, "session_id", returning=_K.token, heartbeat=now(), token=new_token())
renew_lease = update(_K).where(_this_lease).values(heartbeat=now())
move_lease = update(_K).where(_K.session_id == p("session"), _this_lease).values(session_id=p("child"))
delete_lease = delete(_K).where(_this_lease)

# The writer's row tells after a lost connection whether that transaction was committed. (The number that the
# server gives a transaction would not: after a crash it may give it to another one.)
_counted = upsert(_W, "name", name=p("name"), number=p("number", Integer), at=now()).postgresql.cte("counted")
_root = aliased(_S, name="root")
lock_conversation = Forms(
    None,
    select(_root.id)
    .select_from(_S)
    .join(_root, _root.id == _S.root_id)
    .where(_S.id == p("session"))
    .with_for_update(key_share=True, of=_root)
    .add_cte(_counted),
)
find_writer_number = select(_W.number).where(_W.name == p("name"))
forget_writers = delete(_W).where(or_(_W.name == p("name"), _W.at < now() - 86_400))

# --- tasks

_T, _L = t.TaskResultTable, t.ListedTaskTable
insert_task_result = insert_or_ignore(_T)  # a task that was taken over may report again
summarize_task_result = (
    update(_T)
    .where(_T.id == p("result"))
    .values(context_summary=p("summary"), summary_model=p("new_model"), cost=p("new_cost", Float))
)
list_task_results = row(
    "TaskResult",
    select(_T.id, _T.session_id, _T.raw, _T.created_at)
    .add_columns(_T.context_summary, _T.summary_model, _T.cost)
    .where(is_one_of(_T.id, "ids")),
    context_summary=None,
    summary_model="",
    cost=0.0,
)
insert_task_list = insert(t.TaskListTable)
find_task_list = select(t.TaskListTable).where(t.TaskListTable.root_id == p("root"))
save_listed_task = upsert(_L, "root_id", "number")
list_listed_tasks = row(
    "ListedTask",
    select(*(column for column in _L.__table__.columns if column.name != "root_id"))
    .where(_L.root_id == p("root"))
    .order_by(_L.number),
    state="waiting",
    **dict.fromkeys(("session_id", "result_id", "branch", "changes", "error"), ""),
    **dict.fromkeys(("steps", "tokens"), 0),
    cost=0.0,
)
_done = func.sum(case((_L.state == "done", 1), else_=0))
list_unfinished_task_lists = row(
    "UnfinishedTasksRow",
    select(_L.root_id, func.count().label("tasks"), _done.label("done"))
    .group_by(_L.root_id)
    .having(_done < func.count()),
)

# --- file changes

_F = t.FileChangeTable
insert_file_change = insert(_F)
list_batch = select(_F).where(_F.batch == p("batch"))
list_changes_of_others = (
    select(_F)
    .where(_F.number > p("since", Integer), _F.machine == p("machine"), _F.root_id != p("root"))
    .order_by(_F.number)
)
list_file_changes = select(_F).where(_F.root_id == p("root")).order_by(_F.number)
page_file_states = limited(
    row(
        "FileStateRow",
        select(_F.number, _F.before, _F.after).where(_F.number > p("after", Integer)).order_by(_F.number),
    )
)
find_last_change = select(func.max(_F.number))
set_state_after = update(_F).where(_F.number == p("change", Integer)).values(after=p("state"))
delete_file_change = delete(_F).where(_F.number == p("change", Integer))

# --- imports

_I = t.ImportRecordTable
find_import = row(
    "ImportRecord",
    select(_I).where(_I.source == p("source"), _I.foreign_id == p("foreign")).order_by(_I.imported_at.desc()),
    imported_at=0.0,
)
find_last_imported = select(_I.last_message).where(_I.root_id == p("root"))
save_import = upsert(_I, "root_id")
set_import_folder = update(_I).where(_I.root_id == p("root")).values(folder=p("new_folder"))

# --- outputs of tools, on a server

_O = t.OutputTable
_this_output = (_O.root_id == p("root"), _O.name == p("output"))
insert_output = insert(_O)
delete_output = delete(_O).where(*_this_output)
list_output_pieces = select(_O.data).where(*_this_output).order_by(_O.piece)
list_outputs = row("OutputNameRow", select(_O.root_id, _O.name).distinct().order_by(_O.root_id, _O.name))
