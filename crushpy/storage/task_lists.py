"""Lists of tasks, and how far each is. Lives on the storage thread."""

import time

import msgspec
from sqlalchemy import insert, select, update

from crushpy.sanitize import encodable
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
            self._connection.execute(insert(task_lists), {**whole, "created_at": time.time()})
            for task in listed.tasks:
                self._connection.execute(insert(listed_tasks), {"root_id": root_id, **_row(task)})

    def find(self, root_id: str) -> StoredTaskList | None:
        whole = self._connection.execute(select(task_lists).where(task_lists.c.root_id == root_id)).first()
        if whole is None:
            return None
        rows = self._connection.execute(
            select(*(column for column in _T if column.name != "root_id"))
            .where(_T.root_id == root_id)
            .order_by(_T.number)
        )
        tasks = tuple(ListedTask(**row) for row in rows.mappings())
        return StoredTaskList(whole.orders, whole.parallel, tasks)

    def update(self, root_id: str, task: ListedTask) -> None:
        changed = update(listed_tasks).where(_T.root_id == root_id, _T.number == task.number)
        with self._connection.transaction(durable=True, session=root_id):
            self._connection.execute(changed, _row(task))


def _row(task: ListedTask) -> dict[str, object]:
    row = msgspec.structs.asdict(task)
    return {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}
