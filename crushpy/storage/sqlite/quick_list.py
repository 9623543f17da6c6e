"""The list of conversations without SQLModel, whose import takes longer than reading the list.

Only for a file that is as this version made it; everything else is left to those who open it properly.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from crushpy.storage.codec import folder_key
from crushpy.storage.records import ConversationRow
from crushpy.storage.sqlite.faults import DAMAGED
from crushpy.storage.sqlite.migrations import APPLICATION_ID, STEPS
from crushpy.storage.sqlite.patience import AT_A_TIME

_ROWS = (
    "SELECT tip_id, root_id, title, cwd, model, updated_at, generations, messages, imported "
    "FROM conversation {where} ORDER BY updated_at DESC, root_id LIMIT :many"
)


def quick_rows(file: Path, cwd: str | None, limit: int | None) -> list[ConversationRow] | None:
    """The rows, newest first; None where the file has to be opened properly."""
    if not file.exists() or file.with_name(f"{file.name}{DAMAGED}").exists():
        return None
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=AT_A_TIME)
        ) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            mark = db.execute("PRAGMA application_id").fetchone()[0]
            if version != len(STEPS) or mark != APPLICATION_ID:
                return None
            values = {"many": -1 if limit is None else limit, "folder": folder_key(cwd or "")}
            found = db.execute(_ROWS.format(where="" if cwd is None else "WHERE cwd = :folder"), values)
            return [ConversationRow(*row) for row in found]
    except sqlite3.Error:
        return None
