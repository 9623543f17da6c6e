"""Whole tables, for copying a database into another.

Not copied: leases, pending maintenance, the full-text index, which is built again, and tables of servers.
"""

from sqlalchemy import func, select, tuple_
from sqlmodel import SQLModel

import crushpy.storage.tables as _  # noqa: F401  (fills the metadata)
from crushpy.storage.queries import insert_or_ignore, is_one_of_numbers, limited, p, row, upsert
from crushpy.storage.tables import AuditTable, MessageTable

_NOT_COPIED = {"lease", "index_queue", "maintenance"}
_tables = [
    table
    for table in SQLModel.metadata.sorted_tables
    if table.name not in _NOT_COPIED and "only" not in table.info
]


def _place(table, start):
    keys = list(table.primary_key)
    return tuple_(*keys), tuple_(*(p(f"{start}_{key.name}", key.type) for key in keys))


def _within(table):
    key, first = _place(table, "first")
    return key >= first, key <= _place(table, "last")[1]


def _after(table):
    key, place = _place(table, "after")
    return key > place


def _by_key(table):
    return row("", select(table).order_by(*table.primary_key))


count_rows = {table.name: select(func.count()).select_from(table) for table in _tables}
page_first_rows = {table.name: limited(_by_key(table)) for table in _tables}
page_rows = {table.name: limited(_by_key(table).where(_after(table))) for table in _tables}
list_rows_within = {table.name: _by_key(table).where(*_within(table)) for table in _tables}
save_row = {table.name: upsert(table, *(key.name for key in table.primary_key)) for table in _tables}
save_row["audit"] = insert_or_ignore(AuditTable)  # PostgreSQL's trigger refuses an upsert
list_message_sessions = row(
    "MessageSessionRow",
    select(MessageTable.number, MessageTable.session_id).where(is_one_of_numbers(MessageTable.number)),
)
