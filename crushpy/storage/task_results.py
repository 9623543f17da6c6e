"""What tasks gave back, and what they cost. Lives on the storage thread."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import BindParameter, bindparam, func, insert, select, update

from crushpy.messages import Usage
from crushpy.sanitize import encodable
from crushpy.storage.connection import Connection
from crushpy.storage.records import TaskResult
from crushpy.storage.tables import sessions, task_results

_S = sessions.c
_T = task_results.c
_child = sessions.alias()
_root: BindParameter[Any] = bindparam("root")
_all = select(_S.id).where(_S.kind == "task", _S.root_id == _root).cte(recursive=True)
_all = _all.union(select(_child.c.id).join(_all, _child.c.parent_id == _all.c.id))
"""Tasks and what continues them."""
_USED = select(
    *(
        func.coalesce(func.sum(column), 0)
        for column in (
            _S.input_tokens,
            _S.output_tokens,
            _S.cache_read_tokens,
            _S.cache_write_tokens,
            _S.cost,
        )
    )
).where(_S.id.in_(select(_all.c.id)), _S.root_id == _root)


class TaskResults:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, result: TaskResult) -> None:
        row = {**msgspec.structs.asdict(result), "raw": encodable(result.raw)}
        with self._connection.transaction(session=result.session_id):
            self._connection.execute(insert(task_results), row)

    def summarise(self, result: TaskResult) -> None:
        with self._connection.transaction(session=result.session_id):
            self._connection.execute(
                update(task_results).where(_T.id == result.id),
                {
                    "context_summary": encodable(result.context_summary or ""),
                    "summary_model": result.summary_model,
                    "cost": result.cost,
                },
            )

    def of(self, result_ids: Sequence[str]) -> dict[str, TaskResult]:
        rows = self._connection.execute(select(task_results).where(_T.id.in_(result_ids)))
        return {row["id"]: TaskResult(**row) for row in rows.mappings()}

    def usage(self, root_id: str) -> Usage:
        """Of all tasks of a conversation, their summaries included."""
        used = self._connection.execute(_USED, {"root": root_id}).one()
        summaries = select(func.coalesce(func.sum(_T.cost), 0.0)).join(sessions, _S.id == _T.session_id)
        cost = self._connection.execute(summaries.where(_S.root_id == root_id)).scalar() or 0.0
        return Usage(*used) + Usage(cost=cost)
