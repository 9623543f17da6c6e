"""The statements, built once from the tables. SQLAlchemy compiles each at its first use and keeps that."""

from typing import Any

from sqlalchemy import BindParameter, bindparam, delete, func, insert, literal, select, update

from crushpy.storage.conversation_table import DELETED
from crushpy.storage.system_prompts import SESSIONS
from crushpy.storage.tables import drafts, messages, sessions, tool_runs

_S = sessions.c
_M = messages.c
_T = tool_runs.c

_session: BindParameter[Any] = bindparam("session")
_many: BindParameter[Any] = bindparam("many")

# --- sessions ------------------------------------------------------------------------------------------

_seen = _S.kind != DELETED
SESSION_EXISTS = select(literal(1)).where(_S.id == _session, _seen)
SESSIONS_FROM = SESSIONS.where(_S.id >= bindparam("start"), _seen).order_by(_S.id).limit(_many)
UPDATE_SESSION = update(sessions).where(_S.id == _session, _seen)

SESSION = SESSIONS.where(_S.id == _session, _seen)

# --- messages and tool runs ----------------------------------------------------------------------------

ADD_USAGE = (
    update(sessions)
    .where(_S.id == _session, _seen)
    .values(
        input_tokens=_S.input_tokens + bindparam("input"),
        output_tokens=_S.output_tokens + bindparam("output"),
        cache_read_tokens=_S.cache_read_tokens + bindparam("cache_read"),
        cache_write_tokens=_S.cache_write_tokens + bindparam("cache_write"),
        cost=_S.cost + bindparam("price"),
    )
)
DROP_DRAFT = delete(drafts).where(drafts.c.session_id == _session)
COUNT_MESSAGES = ADD_USAGE.values(updated_at=bindparam("now"), message_count=_S.message_count + _many)
INSERT_MESSAGE = insert(messages).values(
    seq=select(func.coalesce(func.max(_M.seq), 0) + 1).where(_M.session_id == _session).scalar_subquery()
)
MESSAGES = select(messages).where(_M.session_id == _session).order_by(_M.seq)

INSERT_RUN = insert(tool_runs)
OPEN_RUNS = select(_T.call_id).where(_T.session_id == _session, _T.ended_at.is_(None))
# Where a provider repeats an id, the result belongs to the run that was begun last.
CLOSE_RUN = (
    update(tool_runs)
    .where(
        _T.number
        == select(func.max(_T.number))
        .where(_T.session_id == _session, _T.call_id == bindparam("call"), _T.ended_at.is_(None))
        .scalar_subquery()
    )
    .values(ended_at=bindparam("now"), is_error=bindparam("failed"), result_id=bindparam("answer"))
)
