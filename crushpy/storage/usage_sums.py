"""Sums of what model calls used, by day, model and conversation. Lives on the storage thread."""

from crushpy.core.messages import Usage
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_table import DELETED
from crushpy.storage.records import UsageSum
from crushpy.storage.rows import Row

_FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_CALLS = """
    SELECT message.session_id, message.model, {day} AS day, {sums}
    FROM session JOIN message ON message.session_id = session.id
    WHERE session.kind != :deleted AND session.updated_at >= :since AND message.usage IS NOT NULL
    GROUP BY message.session_id, message.model, day
"""
_SESSIONS = """
    SELECT session.id, session.root_id, session.cwd, session.model, {day} AS day, {figures},
        session.cost + coalesce((SELECT sum(task_result.cost) FROM task_result
            WHERE task_result.session_id = session.id), 0) AS cost,
        coalesce(conversation.title, session.title) AS title
    FROM session LEFT JOIN conversation ON conversation.root_id = session.root_id
    WHERE session.kind != :deleted AND session.updated_at >= :since
"""
_LEAST = 1e-9
"""Less money than this is what is left over from adding."""


class UsageSums:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        dialect = connection.dialect
        sums = ", ".join(f"{dialect.figure_of.format(name)} AS {name}" for name in _FIGURES)
        figures = ", ".join(f"session.{name}" for name in _FIGURES[:-1])
        self._calls = _CALLS.format(day=dialect.day_of.format("message.created_at"), sums=sums)
        self._sessions = _SESSIONS.format(day=dialect.day_of.format("session.updated_at"), figures=figures)

    def since(self, moment: float) -> list[UsageSum]:
        """Of all sessions that went on since then, on whatever day: whoever asks leaves earlier days out.

        Calls that left no message (titles, summaries) count on the day their session went on last.
        """
        values = {"deleted": DELETED, "since": moment}
        sessions = {row.id: row for row in self._connection.execute(self._sessions, values)}
        told = dict.fromkeys(sessions, Usage())
        found: list[UsageSum] = []
        for row in self._connection.execute(self._calls, values):
            session = sessions.get(row.session_id)
            if session is not None:  # else it was opened between the two questions
                told[session.id] += _usage(row)
                day = self._connection.day(row.day)
                found.append(_sum(session, day, row.model or session.model, _usage(row)))
        for session in sessions.values():
            silent = _less(_usage(session), told[session.id])
            if silent.total or silent.cost:
                day = self._connection.day(session.day)
                found.append(_sum(session, day, session.model, silent))
        return found


def _sum(session: Row, day: str, model: str, usage: Usage) -> UsageSum:
    return UsageSum(day, model, session.cwd, session.root_id, session.title, usage)


def _usage(row: Row) -> Usage:
    return Usage(*(getattr(row, name) or 0 for name in _FIGURES))


def _less(whole: Usage, part: Usage) -> Usage:
    """What is left of `whole`; never below nothing."""
    money = whole.cost - part.cost
    return Usage(
        max(0, whole.input_tokens - part.input_tokens),
        max(0, whole.output_tokens - part.output_tokens),
        max(0, whole.cache_read_tokens - part.cache_read_tokens),
        max(0, whole.cache_write_tokens - part.cache_write_tokens),
        money if money > _LEAST else 0.0,
    )
