"""Deletes conversations: invisible at once, removed from the file in small steps. For the storage thread.

Work that is left when a process ends is continued by the next one that is idle.
"""

from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.audit_rows import append_audit
from crushpy.storage.codec import json_text
from crushpy.storage.database import Database
from crushpy.storage.generated import statements as sql
from crushpy.storage.search_index import indexed_texts, remove_texts, take_up_to
from crushpy.storage.session_rows import drop_prompt, find_prompt
from crushpy.util.login import login_name

_BATCH_ROWS = 50
_BATCH_CHARS = 200_000
"""Deleted in one transaction: a few milliseconds."""
_MERGE = "merge"
"""The maintenance that removes deleted words from the index; its state is begin or go on."""


def mark_deleted(db: Database, root_id: str) -> int:
    """Hides a conversation from now on, and records that in its audit; how many sessions it had."""
    with db.transaction(durable=True, session=root_id):
        return mark_in_transaction(db, root_id)


def mark_in_transaction(db: Database, root_id: str) -> int:
    marked = db.execute(sql.MARK_DELETED, root=root_id).rowcount
    if marked:
        db.execute(sql.DELETE_CONVERSATION, root=root_id)
        append_audit(db, root_id, [AuditEntry("deleted", {"by": login_name(), "sessions": marked})])
        db.execute(sql.DELETE_LEASES_OF_CONVERSATION, root=root_id)
        db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="begin")
    return marked


def delete_rows(db: Database) -> bool:
    """Deletes some of what is marked, overwritten if possible. False if nothing is left of it."""
    session = db.execute(sql.FIND_DELETED_SESSION, many=1).scalar()
    if session is None:
        return False
    rows = take_up_to(
        db.execute(sql.LIST_MESSAGE_SIZES, session=session, many=_BATCH_ROWS).all(), _BATCH_CHARS
    )
    texts = indexed_texts(db, [row.number for row in rows])
    numbers = json_text([row.number for row in rows])
    with db.secure_delete(), db.transaction():
        remaining = set(db.execute(sql.LOCK_MESSAGES, numbers=numbers).scalars())  # others may delete as well
        remove_texts(db, [text for text in texts if text.number in remaining])
        db.execute(sql.DELETE_MESSAGES, numbers=numbers)
        if not rows and not db.execute(sql.DELETE_TOOL_RUNS, session=session, many=_BATCH_ROWS).rowcount:
            prompt = find_prompt(db, session)
            db.execute(sql.DELETE_SESSION, session=session)
            drop_prompt(db, prompt)
            db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="begin")  # others may have finished it
    return True


def merge_index(db: Database) -> bool:
    """Removes some of the deleted words from the index. False if none is left in it."""
    state = db.execute(sql.FIND_MAINTENANCE, name=_MERGE).scalar()
    if state is None:
        return False
    more = db.full_text.merge_some(begin=state == "begin")
    if state == "begin" or not more:
        with db.transaction():
            if more:
                db.execute(sql.SAVE_MAINTENANCE, name=_MERGE, state="go on")
            else:
                db.execute(sql.DELETE_MAINTENANCE, work=_MERGE)
    return more
