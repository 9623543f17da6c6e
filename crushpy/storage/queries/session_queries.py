"""Sessions, prompts, the rows that lists of conversations read, usage, and boundaries."""

from sqlalchemy import Float, Integer, case, cast, exists, func, literal, null, union_all
from sqlmodel import delete, insert, or_, select, update

from crushpy.core.messages import MessageOverride, Pin
from crushpy.storage import tables as t
from crushpy.storage.queries import is_one_of, json_figure, limited, p, quarter_hour, read, row, upsert

_S, _C, _P = t.SessionTable, t.ConversationTable, t.SystemPromptTable
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


_full = row("SessionRow", select(*_columns, _prompt))


def _total(column):
    """A sum of the same type: PostgreSQL's sum of integers is a decimal."""
    return cast(func.sum(column), column.type)


# --- sessions

session_exists = select(literal(1).label("found")).where(_this)
find_session = _full.where(_this)
find_sessions_from = limited(_full.where(_S.id >= p("start"), _not_deleted).order_by(_S.id))
list_sessions = _full.where(_S.root_id == p("root"), _not_deleted).order_by(_S.created_at, _S.generation)
list_session_ids = select(_S.id)
insert_session = insert(_S)
_updated = (
    *("title", "model", "compaction", "mode", "budget", "end_reason", "todos", "grants", "breaker"),
    "system_hash",
)
update_session = (
    update(_S)
    .where(_this)
    .values(
        {
            **{name: func.coalesce(p(f"new_{name}"), getattr(_S, name)) for name in _updated},
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
rename_sessions = update(_S).where(_S.root_id == p("root"), _shown).values(title=p("new_title"))


def _added(**others):
    figures = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    values = {name: getattr(_S, name) + p(f"new_{name}", Integer) for name in figures}
    return update(_S).where(_this).values(**values, cost=_S.cost + p("new_cost", Float), **others)


add_session_usage = _added()
count_messages = _added(
    updated_at=p("now", Float),
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

find_conversation = select(_S.root_id).where(_S.id == p("session"))
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
sum_lineage_messages = select(_total(_up.c.message_count))
insert_conversation = insert(_C)
delete_conversation = delete(_C).where(_C.root_id == p("root"))

_newest_first = (_C.updated_at.desc(), _C.root_id)
_here = _C.cwd == p("folder")
_entries = select(_C.tip_id.label("id"), _C.root_id, _C.title, _C.cwd, _C.model, _C.updated_at).add_columns(
    _C.generations, _C.messages, _C.imported
)
list_conversations = limited(row("ConversationEntry", _entries.order_by(*_newest_first), imported=""))
# Two indexes in place of one condition: a folder may have many conversations.
_imported_here = select(t.ImportRecordTable.root_id).where(t.ImportRecordTable.folder == p("folder"))
_listed = union_all(
    _entries.where(_here), _entries.where(_C.root_id.in_(_imported_here), _C.cwd != p("folder"))
).subquery("listed")
_newest_listed = select(_listed).order_by(_listed.c.updated_at.desc(), _listed.c.root_id)
list_folder_conversations = limited(row("ConversationEntry", _newest_listed, imported=""))
# An outer join, though every tip exists: otherwise SQLite begins with all sessions.
_tips = _full.select_from(_C).outerjoin(_S, _S.id == _C.tip_id)
find_latest_tip = _tips.where(_here, _C.is_open).order_by(*_newest_first)

# --- usage

_figures = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_since = (_not_deleted, _S.updated_at >= p("since", Float))

_M, _T = t.MessageTable, t.TaskResultTable
_quarter = quarter_hour(_M.created_at).label("quarter")
_call = (
    select(_M.session_id, _M.model, _quarter)
    .add_columns(*(func.sum(json_figure(_M.usage, name)).label(name) for name in _figures))
    .join(_S, _S.id == _M.session_id)
    .where(*_since, _M.usage.is_not(None))
    .group_by(_M.session_id, _M.model, _quarter)
    .cte("call")
)
_reported = select(_call.c.session_id, *(func.sum(_call.c[name]).label(name) for name in _figures))
_reported = _reported.group_by(_call.c.session_id).subquery("reported")
_model = func.coalesce(func.nullif(_call.c.model, ""), _S.model)
_summaries = select(func.sum(_T.cost)).where(_T.session_id == _S.id).scalar_subquery()


def _usage(quarter, model, figures):
    title = func.coalesce(_C.title, _S.title).label("title")
    return select(quarter.label("quarter"), model.label("model"), _S.cwd, _S.root_id, title, *figures)


def _unreported(name):
    """Of calls that left no message: titles, summaries."""
    used = getattr(_S, name) - func.coalesce(_reported.c[name], 0)
    return (used + func.coalesce(_summaries, 0) if name == "cost" else used).label(name)


sum_usage = row(
    "UsageSumRow",
    union_all(
        _usage(_call.c.quarter, _model, [_call.c[name] for name in _figures])
        .join(_call, _call.c.session_id == _S.id)
        .outerjoin(_C, _C.root_id == _S.root_id),
        _usage(quarter_hour(_S.updated_at), _S.model, map(_unreported, _figures))
        .outerjoin(_reported, _reported.c.session_id == _S.id)
        .outerjoin(_C, _C.root_id == _S.root_id)
        .where(*_since),
    ),
)
sum_conversation_usage = row(
    "ConversationUsageRow",
    select(*(func.coalesce(_total(getattr(_S, name)), 0).label(name) for name in _figures)).where(
        _S.root_id == p("root")
    ),
)
sum_summary_cost = (
    select(func.coalesce(func.sum(_T.cost), 0))
    .join(_S, _S.id == _T.session_id)
    .where(_S.root_id == p("root"))
)


# --- boundaries, what is carried across them, and pins

_B = t.BoundaryTable

# Undone boundaries have forks for children, which no fork opened.
list_forks = (
    _full.join(_B, _B.child_id == _S.id)
    .where(is_one_of(_S.root_id, "roots"), _S.kind == "fork", _B.trigger == "fork")
    .order_by(_S.updated_at.desc(), _S.id)
)
insert_boundary = insert(_B)
get_boundary = select(_B).where(_B.id == p("boundary"))
_opens = _B.trigger != "return"
find_boundary_of_child = select(_B).where(_B.child_id == p("session"), _opens)
# A session continues in a branch only until that returns: then it is open again, or ends in another way.
_waits = select(_S.end_reason).where(_S.id == p("session")).scalar_subquery() == "branch"
find_continuation = (
    select(_B.child_id)
    .where(_B.parent_id == p("session"), _B.undone_at.is_(None), _B.trigger != "fork")
    .where(or_(_B.trigger != "branch", _waits))
    .order_by(_B.created_at.desc())
)
find_undone_boundary = limited(
    select(_B.id)
    .where(_B.parent_id == p("session"), _B.undone_at.is_not(None))
    .where(_B.trigger.not_in(["branch", "return"]))
)
_of_conversation = (
    select(_B).join(_S, _S.id == _B.child_id).where(_S.root_id == p("root")).order_by(_B.created_at)
)
list_boundaries = _of_conversation.where(_opens)
list_returns = _of_conversation.where(~_opens, _B.undone_at.is_(None))
set_reported_tokens = (
    update(_B)
    .where(_B.child_id == p("session"), _B.reported_after.is_(None))
    .values(reported_after=p("tokens", Integer))
)
set_boundary_undone = update(_B).where(_B.id == p("boundary")).values(undone_at=p("now", Float))

insert_ledger = insert(t.LedgerTable)
find_ledger = select(t.LedgerTable.facts).where(t.LedgerTable.session_id == p("session"))

save_override = upsert(t.MessageOverrideTable, "session_id", "message_id")
list_overrides = read(MessageOverride, t.MessageOverrideTable).where(
    t.MessageOverrideTable.session_id == p("session")
)

save_status = upsert(t.ContextStatusTable, "session_id", "message_id")
list_statuses = select(t.ContextStatusTable).where(t.ContextStatusTable.session_id == p("session"))
insert_pin = insert(t.PinTable)
list_pins = read(Pin, t.PinTable).where(t.PinTable.root_id == p("root")).order_by(t.PinTable.number)
delete_pin = delete(t.PinTable).where(
    t.PinTable.root_id == p("root"), t.PinTable.number == p("number", Integer)
)
