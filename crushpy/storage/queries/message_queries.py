"""Messages, their facts, drafts, and the tool calls that were started."""

from sqlalchemy import Boolean, Float, Integer, func
from sqlmodel import and_, delete, insert, or_, select, update

from crushpy.storage.queries import insert_or_ignore, is_one_of, limited, p, row, upsert
from crushpy.storage.tables import DraftTable, MessageFactTable, MessageTable, SessionTable, ToolRunTable

_M, _S, _R = MessageTable, SessionTable, ToolRunTable
_of_session = _M.session_id == p("session")
_up_to = and_(_of_session, _M.number <= p("last", Integer))

# --- messages

insert_message = insert(_M).values(
    seq=select(func.coalesce(func.max(_M.seq), 0) + 1)
    .where(_M.session_id == p("of_session"))
    .scalar_subquery()
)
insert_numbered_message = insert(_M)
list_messages = select(_M).where(_of_session).order_by(_M.seq)
list_messages_up_to = select(_M).where(_up_to).order_by(_M.seq)
page_messages = limited(select(_M).where(_up_to, _M.seq > p("after", Integer)).order_by(_M.seq))
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
        "MessagePlaceRow",
        select(_M.id, _M.session_id, _M.number).where(_M.id >= p("start"), _M.id < p("end")).order_by(_M.id),
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

add_facts = insert_or_ignore(
    MessageFactTable, ["number", "facts"], select(_M.number, p("facts")).where(_M.id == p("message"))
)
list_facts_up_to = (
    select(MessageFactTable.facts)
    .select_from(_M)
    .outerjoin(MessageFactTable, MessageFactTable.number == _M.number)
    .where(_up_to)
    .order_by(_M.seq)
)

# --- drafts

save_draft = upsert(DraftTable, "session_id")
delete_draft = delete(DraftTable).where(DraftTable.session_id == p("session"))
find_draft = select(DraftTable).where(DraftTable.session_id == p("session"))

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
