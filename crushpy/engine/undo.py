"""Takes a boundary back: the parent is the tip again, the child stays as a branch, files are not touched."""

import time

from crushpy.context import facts
from crushpy.errors import UsageError
from crushpy.ids import new_id
from crushpy.messages import Message, Note
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

MAX_PATHS = 50


async def undo_boundary(store: Store, session_id: str) -> SessionInfo:
    """Undoes the boundary that opened this session (or the latest one of a session that has ended)."""
    boundary = await store.boundary_before(session_id)
    if boundary is None:
        raise UsageError(f"There is no fresh start to undo before session {session_id}.")
    changed = await _changed_since(store, boundary.child_id)
    note = "The user undid the fresh start: this session goes on where it was."
    if changed:
        note += " Meanwhile these files were changed; read them again before you rely on them:\n" + "\n".join(
            changed
        )
    message = Message(id=new_id(), role="user", parts=(Note(note),), created_at=time.time())
    await store.undo(boundary.id, message)
    return await store.session(boundary.parent_id)


async def _changed_since(store: Store, child_id: str) -> list[str]:
    """Files changed in the child and in all that came after it."""
    paths: dict[str, None] = {}
    for session in await store.descendants(child_id):
        for file in facts.touched(await store.messages(session.id)):
            if file.action != "read":
                paths[facts.absolute(file.path, session.cwd)] = None
    shown = list(paths)[:MAX_PATHS]
    return shown + ([f"and {len(paths) - MAX_PATHS} more"] if len(paths) > MAX_PATHS else [])
