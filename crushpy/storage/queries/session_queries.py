"""Sessions, prompts, the rows that lists of conversations read, usage, and boundaries."""

from sqlalchemy import Float, Integer, case, cast, exists, func, literal, null
from sqlmodel import delete, insert, or_, select, update

from crushpy.storage.queries import json_figure, limited, p, quarter_hour, row, upsert
from crushpy.storage.tables import (
    BoundaryTable,
    ConversationTable,
    LedgerTable,
    MessageOverrideTable,
    MessageTable,
    PinTable,
    SessionTable,
    SystemPromptTable,
    TaskResultTable,
)

_S, _C, _P = SessionTable, ConversationTable, SystemPromptTable
_not_deleted = _S.kind != "deleted"
_shown = _S.kind.not_in(["task", "deleted"])
_this = (_S.id == p("session")) & _not_deleted
_columns = [
    getattr(_S, column.name)
    for column in _S.__table__.columns
    if column.name not in ("system", "system_hash")
]
_prompt = func.coalesce(select(_P.text).where(_P.hash == _S.system_hash).scalar_subquery(), _S.system).label(
    "system"
)


def _sessions(*columns):
    return row("SessionRow", select(*columns))


_full = _sessions(*_columns, _prompt)

# --- sessions

session_exists = select(literal(1).label("found")).where(_this)
find_session = _full.where(_this)
find_sessions_from = limited(_full.where(_S.id >= p("start"), _not_deleted).order_by(_S.id))
list_sessions = _full.where(_S.root_id == p("root"), _not_deleted).order_by(_S.created_at, _S.generation)
list_session_ids = select(_S.id)
insert_session = insert(_S)
update_session = (
    update(_S)
    .where(_this)
    .values(
        {
            **{
                name: func.coalesce(p(f"new_{name}"), getattr(_S, name))
                for name in (
                    "title",
                    "model",
                    "compaction",
                    "mode",
                    "end_reason",
                    "todos",
                    "grants",
                    "breaker",
                )
            },
            "system_hash": func.coalesce(p("new_system_hash"), _S.system_hash),
            "system": case((cast(p("new_system_hash"), _S.system.type).is_(null()), _S.system), else_=""),
            "ended_at": case(
                (cast(p("new_end_reason"), _S.system.type).is_(null()), _S.ended_at),
                else_=p("new_ended_at", Float),
            ),
        }
    )
)
end_session = (
    update(_S).where(_S.id == p("session")).values(end_reason=p("reason"), ended_at=p("moment", Float))
)
set_session_kind = update(_S).where(_S.id == p("session")).values(kind=p("new_kind"))
set_session_parent = update(_S).where(_S.id == p("session")).values(parent_id=p("parent"))
rename_sessions = update(_S).where(_S.root_id == p("root"), _shown).values(title=p("new_title"))


def _added(**others):
    figures = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    values = {name: getattr(_S, name) + p(f"new_{name}", Integer) for name in figures}
    return update(_S).where(_this).values(**values, cost=_S.cost + p("new_cost", Float), **others)


add_session_usage = _added()
count_messages = _added(updated_at=p("now", Float), message_count=_S.message_count + p("many", Integer))
count_imported_messages = _added(
    updated_at=case((_S.updated_at > p("latest", Float), _S.updated_at), else_=p("latest", Float)),
    message_count=_S.message_count + p("many", Integer),
    model=func.coalesce(p("new_model"), _S.model),
)

# --- system prompts

# An existing row is touched, so that no other process removes it before the session is stored.
keep_prompt = upsert(_P, "hash", columns=("hash",))
lock_prompt = select(_P.hash).where(_P.hash == p("hash")).with_for_update()
delete_prompt = delete(_P).where(_P.hash == p("hash"), ~exists().where(_S.system_hash == p("hash")))
find_prompt_hash = select(_S.system_hash).where(_S.id == p("session"))

# --- conversations

find_root = select(_S.root_id).where(_S.id == p("session"), _shown)
count_conversation_messages = (
    update(_C)
    .where(_C.tip_id == p("session"))
    .values(updated_at=p("now", Float), messages=_C.messages + p("many", Integer))
)
# The session with the latest message; one that has ended only if all have.
choose_tip = row(
    "TipRow",
    select(_S.id.label("tip_id"), (_S.generation + 1).label("generations"), _S.ended_at)
    .add_columns(_S.cwd, _S.title, _S.model, _S.updated_at, _S.imported)
    .where(_S.root_id == p("root"), _shown)
    .order_by(_S.ended_at.is_not(None), _S.updated_at.desc(), _S.generation.desc()),
)
_up = select(_S.id, _S.parent_id, _S.message_count).where(_S.id == p("tip")).cte("up", recursive=True)
# A union of distinct rows: a cycle of parents ends here.
_up = _up.union(select(_S.id, _S.parent_id, _S.message_count).join(_up, _S.id == _up.c.parent_id))
sum_lineage_messages = select(func.sum(_up.c.message_count))
insert_conversation = insert(_C)
delete_conversation = delete(_C).where(_C.root_id == p("root"))

_newest_first = (_C.updated_at.desc(), _C.root_id)
_here = _C.cwd == p("folder")
# An outer join, though every tip exists: otherwise SQLite begins with all sessions.
_counted = [
    _C.messages.label("message_count") if column.key == "message_count" else column for column in _columns
]


def _tips(columns):
    return _sessions(*columns).select_from(_C).outerjoin(_S, _S.id == _C.tip_id)


list_conversations = limited(select(_C).order_by(*_newest_first))
list_folder_conversations = limited(select(_C).where(_here).order_by(*_newest_first))
_page = (
    _tips([*_counted, literal("").label("system")])
    .where(
        _C.updated_at <= p("moment", Float), or_(_C.updated_at < p("moment", Float), _C.root_id > p("root"))
    )
    .order_by(*_newest_first)
)
list_tips = limited(_page)
list_folder_tips = limited(_page.where(_here))
find_latest_tip = _tips([*_columns, _prompt]).where(_here, _C.is_open).order_by(*_newest_first)

# --- usage

_figures = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_since = (_not_deleted, _S.updated_at >= p("since", Float))


def _quarter(moment):
    return quarter_hour(moment).label("quarter")


def _sum_usage(quarter):
    return row(
        "CallUsageRow",
        select(
            MessageTable.session_id,
            MessageTable.model,
            quarter,
            *(func.sum(json_figure(MessageTable.usage, literal(name))).label(name) for name in _figures),
        )
        .join(_S, _S.id == MessageTable.session_id)
        .where(*_since, MessageTable.usage.is_not(None))
        .group_by(MessageTable.session_id, MessageTable.model, quarter),
    )


sum_call_usage = _sum_usage(_quarter(MessageTable.created_at))
sum_session_usage = row(
    "SessionUsageRow",
    select(
        _S.id,
        _S.root_id,
        _S.cwd,
        _S.model,
        _quarter(_S.updated_at),
        *(getattr(_S, name) for name in _figures[:-1]),
        (
            _S.cost
            + func.coalesce(
                select(func.sum(TaskResultTable.cost))
                .where(TaskResultTable.session_id == _S.id)
                .scalar_subquery(),
                0,
            )
        ).label("cost"),
        func.coalesce(_C.title, _S.title).label("title"),
    )
    .outerjoin(_C, _C.root_id == _S.root_id)
    .where(*_since),
)
# Tasks and the sessions that continue them.
_task = select(_S.id).where(_S.kind == "task", _S.root_id == p("root")).cte("task", recursive=True)
_task = _task.union(select(_S.id).join(_task, _S.parent_id == _task.c.id))
sum_task_usage = row(
    "TaskUsageRow",
    select(*(func.coalesce(func.sum(getattr(_S, name)), 0).label(name) for name in _figures)).where(
        _S.id.in_(select(_task.c.id)), _S.root_id == p("root")
    ),
)
sum_summary_cost = (
    select(func.coalesce(func.sum(TaskResultTable.cost), 0))
    .join(_S, _S.id == TaskResultTable.session_id)
    .where(_S.root_id == p("root"))
)


# --- boundaries, what is carried across them, and pins

_B = BoundaryTable

insert_boundary = insert(_B)
get_boundary = select(_B).where(_B.id == p("boundary"))
find_boundary_of_child = select(_B).where(_B.child_id == p("session"))
find_continuation = (
    select(_B.child_id)
    .where(_B.parent_id == p("session"), _B.undone_at.is_(None), _B.trigger != "fork")
    .order_by(_B.created_at.desc())
)
find_undone_boundary = limited(select(_B.id).where(_B.parent_id == p("session"), _B.undone_at.is_not(None)))
list_boundaries = (
    select(_B)
    .join(SessionTable, SessionTable.id == _B.child_id)
    .where(SessionTable.root_id == p("root"))
    .order_by(_B.created_at)
)
set_reported_tokens = (
    update(_B)
    .where(_B.child_id == p("session"), _B.reported_after.is_(None))
    .values(reported_after=p("tokens", Integer))
)
set_boundary_undone = update(_B).where(_B.id == p("boundary")).values(undone_at=p("now", Float))

insert_ledger = insert(LedgerTable)
find_ledger = select(LedgerTable.facts).where(LedgerTable.session_id == p("session"))

save_override = upsert(MessageOverrideTable, "session_id", "message_id")
list_overrides = select(MessageOverrideTable).where(MessageOverrideTable.session_id == p("session"))

insert_pin = insert(PinTable)
list_pins = select(PinTable).where(PinTable.root_id == p("root")).order_by(PinTable.number)
delete_pin = delete(PinTable).where(PinTable.root_id == p("root"), PinTable.number == p("number", Integer))
