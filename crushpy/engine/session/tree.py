"""The tree of a conversation: forking a session, undoing a boundary, and how sessions are related. No message
is copied."""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from crushpy.context.coverage import tokens_words
from crushpy.context.partition import units
from crushpy.core.boundary import BRANCH, FORK, RETURN, StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Note, ToolResult, short_count
from crushpy.engine.session.session import (
    LoadedSession,
    child_of,
    load_session,
    note_message,
    result_message,
)
from crushpy.security.sanitize import encodable
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

MAX_PATHS = 50
"""Files named in a note."""


async def fork_session(
    store: Store, source: SessionInfo, at: str = "", *, before: bool = False, fork_id: str = ""
) -> LoadedSession:
    """A fork of `source`; the session itself is not changed.

    With `at`, a message id or a unique prefix, it holds everything up to that message and its results, or
    everything `before` it. The message may be one of `source` or of the sessions before it.
    """
    if at:
        parent, viewed, history = await _at_message(store, source, at, before=before)
    else:
        parent, viewed = source, await load_session(store, source, read_only=True)
        history = viewed.history
    now = time.time()
    info = msgspec.structs.replace(
        child_of(source, now, kind=FORK),
        id=fork_id or new_id(),
        parent_id=parent.id,
        generation=viewed.info.generation,
        system=viewed.info.system,
    )
    tail = tuple(message.id for message in history)
    later = {message.id for message in viewed.history}.difference(tail)
    overrides = tuple(override for override in viewed.overrides if override.message_id not in later)
    boundary = StoredBoundary(new_id(), parent.id, info.id, "fork", created_at=now, tail=tail)
    await store.boundaries.add(boundary, info, None, overrides=overrides)
    return await load_session(store, info)


async def _at_message(
    store: Store, source: SessionInfo, at: str, *, before: bool
) -> tuple[SessionInfo, LoadedSession, tuple[Message, ...]]:
    """The session that holds the message, the one whose view of the history the fork inherits, with its
    edits, and that history."""
    place = await store.messages.find(at, within=source.id)
    lineage = await store.sessions.load_lineage(source.id)
    owner = next(number for number, session in enumerate(lineage) if session.id == place.session_id)
    viewed = owner
    for number in range(owner + 1, len(lineage)):  # forks show the messages before them unchanged
        if await store.boundaries.find_opening(lineage[number].id) is not None:
            break
        viewed = number
    loaded = await load_session(store, lineage[viewed], read_only=True)
    history = _up_to(loaded, place.message_id, before=before)
    if history and history[-1].seed:  # only the seed: add what was carried in with it
        loaded = await load_session(store, lineage[owner], read_only=True)
        history = loaded.history[: loaded.inherited]
    return lineage[owner], loaded, history


def _up_to(loaded: LoadedSession, message_id: str, *, before: bool) -> tuple[Message, ...]:
    """The history up to the end of the unit that holds this message, or up to its beginning."""
    kept: list[Message] = []
    for unit in units(loaded.history):
        here = any(message.id == message_id for message in unit)
        if not (here and before):
            kept += unit
        if here:
            break
    return tuple(kept)


async def find_undoable(store: Store, session_id: str) -> StoredBoundary:
    """What `undo_compaction` undoes: the last return, that of this branch or one into this session, else the
    boundary that opened this session."""
    boundary = await _last_return(store, session_id) or await store.boundaries.find_opening(session_id)
    if boundary is None:
        raise UsageError(
            f"There is no compaction to undo before session {session_id}.",
            "`crushpy sessions tree` shows where there is one.",
        )
    return boundary


async def undo_compaction(
    store: Store, session_id: str, *, boundary_id: str = "", follow: bool = False
) -> SessionInfo:
    """Undoes `boundary_id`, which opened this session, or what is found: the parent is the tip again, and is
    returned. The child stays, marked undone; files are not changed. After a return the branch is the place to
    continue.

    With `follow` this process continues in the parent: it keeps the parent's lease and drops the child's.
    """
    opening = await store.boundaries.find_opening(session_id) if boundary_id else None
    if opening is None or opening.id != boundary_id:
        boundary = await find_undoable(store, session_id)
    else:
        boundary = opening
    if boundary.undone_at is not None:
        raise UsageError(
            f"The compaction before session {boundary.child_id} was already undone: "
            f"{boundary.parent_id} continues without it.",
            f"Continue in the fork with --session {boundary.child_id}, or in {boundary.parent_id}.",
        )
    tip = await store.sessions.find_tip(boundary.child_id)
    if boundary.trigger == RETURN and tip.id != boundary.child_id:
        raise UsageError(
            f"Session {boundary.child_id} continues in {tip.id}, after the branch returned to it.",
            f"Undo that first, or continue in a fork of the branch: --session {boundary.parent_id} --fork.",
        )
    async with store.leases.hold(tip.id, boundary.parent_id) as taken:  # not while others work there
        await store.boundaries.undo(boundary.id, *await _undo_notes(store, boundary))
        if follow:
            taken[:] = [tip.id]
    return await store.sessions.find(boundary.parent_id)


def undoable_words(boundary: StoredBoundary) -> str:
    """What an undo would take back."""
    if boundary.trigger in (RETURN, BRANCH):
        what = "the return of the branch" if boundary.trigger == RETURN else "the branch"
        return f"{what} “{boundary.moment}”" if boundary.moment else what
    sizes = tokens_words(boundary, boundary.reported_after, short_count)
    return f"the last compaction ({', '.join(filter(None, (boundary.trigger, sizes)))})"


async def _last_return(store: Store, session_id: str) -> StoredBoundary | None:
    """The last return of this branch, or into this session."""
    root_id = (await store.sessions.find(session_id)).root_id
    for boundary in reversed(await store.boundaries.load_conversation(root_id, returns=True)):
        chain = (await store.sessions.load_lineage(boundary.parent_id))[::-1]
        length = next((number for number, session in enumerate(chain, 1) if session.kind == BRANCH), 0)
        if session_id in (boundary.child_id, *(session.id for session in chain[:length])):
            return boundary
    return None


async def _undo_notes(store: Store, boundary: StoredBoundary) -> list[Message]:
    """What the next request says about it."""
    if boundary.trigger == RETURN:
        return [note_message(Note("The user undid the return: this branch continues where it was."))]
    what = "branch" if boundary.trigger == BRANCH else "compaction"
    words = f"The user undid the {what}: this session continues where it was."
    if changed := await _changed_since(store, boundary.child_id):
        words += " Meanwhile these files were changed; read them again before you rely on them:"
    messages = [note_message(note_on_files(words, changed))]
    first = (await store.messages.load_ends(boundary.child_id, 1))[0].result if what == BRANCH else None
    if first is not None:  # the call has no other result in the parent
        answer = ToolResult(first.call_id, first.name, "The user undid this branch.", is_error=True)
        messages.insert(0, result_message(answer))
    return messages


async def _changed_since(store: Store, child_id: str) -> list[str]:
    """Files changed in the child and in all that came after it."""
    root_id = (await store.sessions.find(child_id)).root_id
    family = {child_id}
    for session in await store.sessions.load_conversation(root_id):  # each comes after its parent
        family |= {session.id} if session.parent_id in family else set()
    changes = await store.file_changes.load(root_id)
    return list(dict.fromkeys(change.path for change in changes if change.session_id in family))


def note_on_files(words: str, paths: Sequence[str]) -> Note:
    """Tells the agent about files that are not as it left them."""
    more = [f"and {len(paths) - MAX_PATHS} more"] if len(paths) > MAX_PATHS else []
    return Note("\n".join((words, *map(encodable, paths[:MAX_PATHS]), *more)))


# --- the tree ------------------------------------------------------------------------------------------

Relation = Literal["first", "continues", "branch", "fork", "undone", "task"]


class TreeRow(Data, frozen=True):
    """One session of the tree."""

    session: SessionInfo
    boundary: StoredBoundary | None
    """The boundary that opened it; None for the first session and for tasks."""
    relation: Relation
    """Its relation to its parent. A branch folds back, a fork does not; undone: the boundary was undone."""
    under: str
    """Id of the session it is drawn below; empty for the first. A continuation follows its session in the
    same column; all others go deeper."""
    tip: bool
    """The conversation continues here."""


def arrange_tree(
    sessions: list[SessionInfo], boundaries: dict[str, StoredBoundary], tip: str
) -> list[TreeRow]:
    """The tree as a list, each session after the one it is drawn below.

    A session whose parent is gone stands at the left, and none is drawn twice.
    """
    known = {session.id: session for session in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for session in sessions:
        parent = session.parent_id if session.parent_id in known else ""
        children.setdefault(parent or "", []).append(session)
    found: dict[str, TreeRow] = {}

    def place(session: SessionInfo) -> None:
        boundary = boundaries.get(session.id)
        parent = session.parent_id if session.parent_id in found else ""
        relation: Relation = "first"
        if parent:
            undone = boundary is not None and boundary.undone_at is not None
            kinds: dict[str, Relation] = {"task": "task", BRANCH: BRANCH, FORK: FORK}
            relation = kinds.get(session.kind, "continues")
            relation = "undone" if undone and relation != "task" else relation
        under = found[parent].under if parent and relation == "continues" else parent or ""
        found[session.id] = TreeRow(session, boundary, relation, under, session.id == tip)

    for start in [*children.get("", []), *sessions]:  # the second half: corrupt cycles
        waiting = [start]
        while waiting:
            session = waiting.pop()
            if session.id not in found:
                place(session)
                waiting += reversed(children.get(session.id, []))
    return list(found.values())


def draw_guides(tree: list[TreeRow]) -> dict[str, str]:
    """The lines that lead to each session, by id, from top to bottom. A chain of continuations stays in one
    column."""
    children: dict[str, list[TreeRow]] = {}
    for row in tree:
        children.setdefault(row.under, []).append(row)
    guides: dict[str, str] = {}

    def draw(under: str, lead: str) -> None:
        rows = children.get(under, [])
        ends = max((number for number, row in enumerate(rows) if row.relation != "continues"), default=0)
        for number, row in enumerate(rows):
            below = (lead + ("   " if number >= ends else "│  ")) if under else ""
            joined = (lead + ("└─ " if number >= ends else "├─ ")) if under else ""
            guides[row.session.id] = below if row.relation == "continues" else joined
            draw(row.session.id, below)

    draw("", "")
    return guides
