"""Timeline notes, the audit, tasks, file changes, imports and outputs."""

from sqlalchemy import Float, Integer, case, func
from sqlmodel import delete, insert, or_, select, update

from crushpy.storage.queries import is_one_of, limited, p, row, upsert
from crushpy.storage.tables import (
    AuditEndTable,
    AuditTable,
    FileChangeTable,
    ImportRecordTable,
    ListedTaskTable,
    OutputTable,
    TaskListTable,
    TaskResultTable,
    TimelineNoteTable,
)

# --- timeline notes

_N = TimelineNoteTable
insert_note = insert(_N)
list_notes = (
    select(_N).where(or_(_N.session_id == p("session"), is_one_of(_N.after, "carried"))).order_by(_N.number)
)

# --- the audit

_A, _E = AuditTable, AuditEndTable
insert_audit = insert(_A)
list_audit = select(_A).where(_A.root_id == p("root")).order_by(_A.number)
find_audit_end = select(_E).where(_E.root_id == p("root"))
save_audit_end = upsert(_E, "root_id")
list_audited = select(_E.root_id).where(_E.root_id >= p("start")).order_by(_E.root_id)
list_audited_without_end = select(_A.root_id).where(_A.root_id.not_in(select(_E.root_id))).distinct()

# --- tasks

_T, _L = TaskResultTable, ListedTaskTable
insert_task_result = insert(_T)
summarize_task_result = (
    update(_T)
    .where(_T.id == p("result"))
    .values(context_summary=p("summary"), summary_model=p("new_model"), cost=p("new_cost", Float))
)
list_task_results = select(_T).where(is_one_of(_T.id, "ids"))
insert_task_list = insert(TaskListTable)
find_task_list = select(TaskListTable).where(TaskListTable.root_id == p("root"))
save_listed_task = upsert(_L, "root_id", "number")
list_listed_tasks = select(_L).where(_L.root_id == p("root")).order_by(_L.number)
_done = func.sum(case((_L.state == "done", 1), else_=0))
list_unfinished_task_lists = row(
    "UnfinishedTasksRow",
    select(_L.root_id, func.count().label("tasks"), _done.label("done"))
    .group_by(_L.root_id)
    .having(_done < func.count()),
)

# --- file changes

_F = FileChangeTable
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

_I = ImportRecordTable
find_import = (
    select(_I).where(_I.source == p("source"), _I.foreign_id == p("foreign")).order_by(_I.imported_at.desc())
)
save_import = upsert(_I, "root_id")

# --- outputs of tools, on a server

_O = OutputTable
_this_output = (_O.root_id == p("root"), _O.name == p("output"))
insert_output = insert(_O)
delete_output = delete(_O).where(*_this_output)
list_output_pieces = select(_O.data).where(*_this_output).order_by(_O.piece)
list_outputs = row("OutputNameRow", select(_O.root_id, _O.name).distinct().order_by(_O.root_id, _O.name))
