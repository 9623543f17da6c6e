"""Lists of tasks, and how far each is. Lives on the storage thread."""

import time

import msgspec

from crushpy.security.sanitize import encodable
from crushpy.storage.connection import Connection
from crushpy.storage.records import ListedTask, StoredTaskList, TasksDone

_LIST = "SELECT orders, parallel FROM task_list WHERE root_id = :root"
_COLUMNS = ", ".join(ListedTask.__struct_fields__)
_TASKS = f"SELECT {_COLUMNS} FROM listed_task WHERE root_id = :root ORDER BY number"  # noqa: S608
_UNFINISHED = """
    SELECT root_id, count(*) AS tasks, sum(CASE state WHEN 'done' THEN 1 ELSE 0 END) AS done
    FROM listed_task GROUP BY root_id HAVING max(CASE state WHEN 'done' THEN 0 ELSE 1 END) = 1
"""


class TaskLists:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, root_id: str, listed: StoredTaskList) -> None:
        whole = {"root_id": root_id, "orders": encodable(listed.orders), "parallel": listed.parallel}
        with self._connection.transaction(durable=True, session=root_id):
            self._connection.insert("task_list", {**whole, "created_at": time.time()})
            rows = [{"root_id": root_id, **_row(task)} for task in listed.tasks]
            self._connection.insert("listed_task", *rows)

    def find(self, root_id: str) -> StoredTaskList | None:
        whole = self._connection.execute(_LIST, {"root": root_id}).first()
        if whole is None:
            return None
        rows = self._connection.execute(_TASKS, {"root": root_id})
        tasks = tuple(ListedTask(**row.as_dict()) for row in rows)
        return StoredTaskList(whole.orders, whole.parallel, tasks)

    def unfinished(self) -> dict[str, TasksDone]:
        """Of all conversations whose list is not done: how far each is."""
        return {row.root_id: TasksDone(row.done, row.tasks) for row in self._connection.execute(_UNFINISHED)}

    def update(self, root_id: str, task: ListedTask) -> None:
        this = "root_id = :root_id AND number = :number"
        values = {"root_id": root_id, "number": task.number}
        with self._connection.transaction(durable=True, session=root_id):
            self._connection.update("listed_task", this, values, _row(task))


def _row(task: ListedTask) -> dict[str, object]:
    row = msgspec.structs.asdict(task)
    return {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}
