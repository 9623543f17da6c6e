"""Lists of tasks, and how far each is. Lives on the storage thread."""

import time

import msgspec
from sqlalchemy import select

from crushpy.sanitize import encodable
from crushpy.storage.built_statements import run_built
from crushpy.storage.connection import Connection
from crushpy.storage.records import ListedTask, StoredTaskList
from crushpy.storage.tables import listed_tasks, task_lists

_T = listed_tasks.c


class TaskLists:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, root_id: str, listed: StoredTaskList) -> None:
        whole = {"root_id": root_id, "orders": encodable(listed.orders), "parallel": listed.parallel}
        with self._connection.transaction(durable=True, session=root_id):
            self._connection.insert(task_lists.name, {**whole, "created_at": time.time()})
            rows = [{"root_id": root_id, **_row(task)} for task in listed.tasks]
            self._connection.insert(listed_tasks.name, *rows)

    def find(self, root_id: str) -> StoredTaskList | None:
        whole = run_built(self._connection, select(task_lists).where(task_lists.c.root_id == root_id)).first()
        if whole is None:
            return None
        rows = run_built(
            self._connection,
            select(*(column for column in _T if column.name != "root_id"))
            .where(_T.root_id == root_id)
            .order_by(_T.number),
        )
        tasks = tuple(ListedTask(**row.as_dict()) for row in rows)
        return StoredTaskList(whole.orders, whole.parallel, tasks)

    def update(self, root_id: str, task: ListedTask) -> None:
        this = "root_id = :root_id AND number = :number"
        values = {"root_id": root_id, "number": task.number}
        with self._connection.transaction(durable=True, session=root_id):
            self._connection.update(listed_tasks.name, this, values, _row(task))


def _row(task: ListedTask) -> dict[str, object]:
    row = msgspec.structs.asdict(task)
    return {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}
