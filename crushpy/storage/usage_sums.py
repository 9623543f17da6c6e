"""Sums of what model calls used, by day, model and conversation. Lives on the storage thread."""

from typing import Any

from sqlalchemy import Row, text

from crushpy.messages import Usage
from crushpy.storage.conversation_table import DELETED
from crushpy.storage.records import UsageSum
from crushpy.storage.sqlite_connection import SqliteConnection

_DAY = "date({at}, 'unixepoch', 'localtime')"
_FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")
_SUMS = ", ".join(f"sum(json_extract(message.usage, '$.{name}')) AS {name}" for name in _FIGURES)
_CALLS = text(f"""
    SELECT message.session_id, message.model, {_DAY.format(at="message.created_at")} AS day, {_SUMS}
    FROM session JOIN message ON message.session_id = session.id
    WHERE session.kind != :deleted AND session.updated_at >= :since AND message.usage IS NOT NULL
    GROUP BY message.session_id, message.model, day
""")  # noqa: S608  # made of constants
_SESSIONS = text(f"""
    SELECT session.id, session.root_id, session.cwd, session.model,
        {_DAY.format(at="session.updated_at")} AS day,
        {", ".join(f"session.{name}" for name in _FIGURES[:-1])},
        session.cost + coalesce((SELECT sum(task_result.cost) FROM task_result
            WHERE task_result.session_id = session.id), 0) AS cost,
        coalesce(conversation.title, session.title) AS title
    FROM session LEFT JOIN conversation ON conversation.root_id = session.root_id
    WHERE session.kind != :deleted AND session.updated_at >= :since
""")  # noqa: S608  # made of constants
_LEAST = 1e-9
"""Less money than this is what is left over from adding."""


class UsageSums:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def since(self, moment: float) -> list[UsageSum]:
        """Of all sessions that went on since then, on whatever day: whoever asks leaves earlier days out.

        Calls that left no message (titles, summaries) count on the day their session went on last.
        """
        values = {"deleted": DELETED, "since": moment}
        sessions = {row.id: row for row in self._connection.execute(_SESSIONS, values)}
        told = dict.fromkeys(sessions, Usage())
        found: list[UsageSum] = []
        for row in self._connection.execute(_CALLS, values):
            session = sessions.get(row.session_id)
            if session is not None:  # else it was opened between the two questions
                told[session.id] += _usage(row)
                found.append(_sum(session, row.day, row.model or session.model, _usage(row)))
        for session in sessions.values():
            silent = _less(_usage(session), told[session.id])
            if silent.total or silent.cost:
                found.append(_sum(session, session.day, session.model, silent))
        return found


def _sum(session: Row[Any], day: str, model: str, usage: Usage) -> UsageSum:
    return UsageSum(day, model, session.cwd, session.root_id, session.title, usage)


def _usage(row: Row[Any]) -> Usage:
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
