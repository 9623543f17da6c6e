"""Takes a boundary back: the parent is the tip again, the child stays as a branch, files are not touched."""

import time

from crushpy.context import facts
from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Note
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

MAX_PATHS = 50


async def undo_boundary(store: Store, session_id: str, *, follow: bool = False) -> SessionInfo:
    """Undoes the boundary that opened this session and gives its parent.

    With `follow` this process goes on there: the parent's lease is its own from now on, the child's no more.
    """
    boundary = await store.boundaries.find_opening(session_id)
    if boundary is None:
        raise UsageError(
            f"There is no fresh start to undo before session {session_id}.",
            "`crushpy sessions tree` shows where there is one.",
        )
    if boundary.undone_at is not None:
        raise UsageError(
            f"The fresh start before session {boundary.child_id} was undone already: "
            f"{boundary.parent_id} goes on without it.",
            f"Go on in the branch with --session {boundary.child_id}, or in {boundary.parent_id}.",
        )
    tip = await store.sessions.find_tip(boundary.child_id)
    taken: list[str] = []
    try:
        for one in (tip.id, boundary.parent_id):  # not while another process works there
            if await store.leases.acquire(one):
                taken.append(one)
        await store.boundaries.undo(boundary.id, await _note(store, boundary.child_id))
        taken = [tip.id] if follow else taken
    finally:
        for one in taken:
            await store.leases.release(one)
    return await store.sessions.find(boundary.parent_id)


async def _note(store: Store, child_id: str) -> Message:
    """What the parent's next request says of it."""
    changed = await _changed_since(store, child_id)
    note = "The user undid the fresh start: this session goes on where it was."
    if changed:
        note += " Meanwhile these files were changed; read them again before you rely on them:\n" + "\n".join(
            changed
        )
    return Message(id=new_id(), role="user", parts=(Note(note),), created_at=time.time())


async def _changed_since(store: Store, child_id: str) -> list[str]:
    """Files changed in the child and in all that came after it."""
    paths: dict[str, None] = {}
    for session in await store.sessions.load_descendants(child_id):
        for file in facts.touched(await store.messages.load(session.id)):
            if file.action != "read":
                paths[facts.absolute(file.path, session.cwd)] = None
    shown = list(paths)[:MAX_PATHS]
    return shown + ([f"and {len(paths) - MAX_PATHS} more"] if len(paths) > MAX_PATHS else [])
