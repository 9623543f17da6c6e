"""What tasks gave back, and what they cost. Lives on the storage thread."""

from collections.abc import Sequence

import msgspec

from crushpy.core.messages import Usage
from crushpy.security.sanitize import encodable
from crushpy.storage.codec import to_column
from crushpy.storage.connection import Connection
from crushpy.storage.records import TaskResult

# Tasks and what continues them.
_USED = """
    WITH RECURSIVE task (id) AS (
        SELECT id FROM session WHERE kind = 'task' AND root_id = :root
        UNION SELECT session.id FROM session JOIN task ON session.parent_id = task.id
    )
    SELECT coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
        coalesce(sum(cache_read_tokens), 0), coalesce(sum(cache_write_tokens), 0), coalesce(sum(cost), 0)
    FROM session WHERE id IN (SELECT id FROM task) AND root_id = :root
"""
_SUMMARIES = """
    SELECT coalesce(sum(task_result.cost), 0) FROM task_result
    JOIN session ON session.id = task_result.session_id WHERE session.root_id = :root
"""
_OF = "SELECT * FROM task_result WHERE id IN ({})"


class TaskResults:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, result: TaskResult) -> None:
        row = {**msgspec.structs.asdict(result), "raw": encodable(result.raw)}
        with self._connection.transaction(session=result.session_id):
            self._connection.insert("task_result", row)

    def summarise(self, result: TaskResult) -> None:
        with self._connection.transaction(session=result.session_id):
            changes = {
                "context_summary": encodable(result.context_summary or ""),
                "summary_model": result.summary_model,
                "cost": result.cost,
            }
            self._connection.update("task_result", "id = :result", {"result": result.id}, changes)

    def of(self, result_ids: Sequence[str]) -> dict[str, TaskResult]:
        statement = _OF.format(self._connection.dialect.items_of.format(":ids"))
        rows = self._connection.execute(statement, {"ids": to_column(result_ids)})
        return {row.id: TaskResult(**row.as_dict()) for row in rows}

    def usage(self, root_id: str) -> Usage:
        """Of all tasks of a conversation, their summaries included."""
        used = self._connection.execute(_USED, {"root": root_id}).one()
        cost = self._connection.execute(_SUMMARIES, {"root": root_id}).scalar()
        return Usage(*used) + Usage(cost=cost)
