"""Tasks on a fleet and its workers, on a server only."""

from sqlalchemy import Boolean, Float, Integer, and_, case, cast, func, null
from sqlmodel import delete, select, update

from crushpy.storage import tables as t
from crushpy.storage.queries import insert_or_ignore, new_token, now, p, row, upsert

_F, _W, _L, _O = t.FleetTaskTable, t.FleetWorkerTable, t.ListedTaskTable, t.OutputTable
_this = (_F.root_id == p("root"), _F.number == p("number", Integer))
_same = and_(_L.root_id == _F.root_id, _L.number == _F.number)
_is_fresh = _W.heartbeat > now() - p("timeout", Float)

# --- tasks

_stuck_s = case((_F.stuck == "", 0), else_=now() - _F.stuck_since)
_alive = and_(_F.token != 0, func.coalesce(_is_fresh, False))
_listed = [column for column in _L.__table__.columns if column.name != "root_id"]
_tasks = row(
    "FleetTaskRow",
    select(_F.root_id, *_listed, _F.token, _F.worker, _F.deaths, _F.queued, _F.stuck)
    .add_columns(_F.line, _F.question, _F.answer, _F.inbox, _F.stopped)
    .add_columns(cast(_stuck_s, t.FLOAT).label("stuck_s"), _alive.label("alive"))
    .join(_L, _same)
    .outerjoin(_W, _W.name == _F.worker),
)
list_fleet_tasks = _tasks.where(_F.root_id == p("root")).order_by(_F.number)
find_fleet_task = _tasks.where(*_this)
list_dead_claims = _tasks.where(_F.token != 0, ~_alive)
add_fleet_tasks = insert_or_ignore(
    _F, ["root_id", "number"], select(_L.root_id, _L.number).where(_L.root_id == p("root"))
)
_texts = ("worker", "deaths", "stuck", "line", "question", "answer", "inbox")
_changed = {name: func.coalesce(p(f"new_{name}"), getattr(_F, name)) for name in _texts}
_changed |= {
    name: func.coalesce(p(f"new_{name}", Boolean), getattr(_F, name)) for name in ("queued", "stopped")
}
update_fleet_task = (
    update(_F)
    .where(*_this)
    .values(
        **_changed,
        token=func.coalesce(p("new_token", Integer), _F.token),
        stuck_since=case((cast(p("new_stuck"), t.TEXT).is_(null()), _F.stuck_since), else_=now()),
    )
)
unqueue_tasks = update(_F).values(queued=False)
new_claim = select(new_token())
sum_listed_tasks = row(
    "ListedTaskSumRow",
    select(cast(func.sum(_L.steps), _L.steps.type).label("steps"))
    .add_columns(cast(func.sum(_L.tokens), _L.tokens.type).label("tokens"), func.sum(_L.cost).label("cost"))
    .where(_L.root_id == p("root")),
)

# --- lists

_lists = select(t.TaskListTable.root_id).order_by(t.TaskListTable.created_at.desc())
_active = _L.state.in_(["waiting", "running"]) & ~_F.stopped
list_fleet_lists = _lists.where(t.TaskListTable.root_id.in_(select(_F.root_id)))
list_active_lists = _lists.where(
    t.TaskListTable.root_id.in_(select(_F.root_id).join(_L, _same).where(_active))
)
set_orders = (
    update(t.TaskListTable).where(t.TaskListTable.root_id == p("root")).values(orders=p("new_orders"))
)
_steps = (_O.root_id == p("root"), _O.name.like(p("pattern")))
list_steps = select(_O.name).where(*_steps).distinct().order_by(_O.name)
delete_steps = delete(_O).where(*_steps)

# --- workers

# A worker that was told to drain stays so.
save_worker = upsert(
    _W, "name", columns=("lacks", "heartbeat"), returning=_W.draining, heartbeat=now(), draining=False
)
list_claims = row(
    "ClaimRow",
    select(_F.root_id, _F.number, _F.token).where(_F.worker == p("name"), _F.token != 0, ~_F.stopped),
)
delete_worker = delete(_W).where(_W.name == p("name"))
drain_worker = update(_W).where(_W.name == p("name")).values(draining=True)
list_workers = row(
    "FleetWorkerRow",
    select(_W.name, _W.host, _W.version, _W.labels, _W.slots, _W.lacks, _W.draining)
    .add_columns(
        select(func.count()).where(_F.worker == _W.name, _F.token != 0).scalar_subquery().label("running"),
        cast(now() - _W.heartbeat, t.FLOAT).label("silent"),
    )
    .where(_is_fresh)
    .order_by(_W.name),
)
