"""What evidence is built from at a boundary: the facts of the lineage, and a snapshot of the workspace."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from crushpy.context.evidence import WorkspaceSnapshot
from crushpy.context.ledger import Ledger
from crushpy.context.message_facts import FactReader, MessageFacts
from crushpy.engine.session.session import LiveSession
from crushpy.security.safe_git import git_output, known_filters
from crushpy.storage.records import EVERYTHING, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import ToolContext

GIT_TIMEOUT_S = 5.0
MAX_DIRTY_FILES = 40
_facts = msgspec.json.Decoder(MessageFacts)
_ledger = msgspec.json.Decoder(Ledger)


async def load_ledger(session: LiveSession, store: Store, *, store_missing: bool) -> Ledger:
    """The facts of the whole lineage, this session included. Facts are stored with their messages, so no
    message is read. Missing ones are extracted once, and stored if `store_missing`."""
    info = session.info
    stored = await store.boundaries.load_ledger(info.id)
    phrases = session.phrases() if session.phrases else None

    async def read(session_id: str, last: int = EVERYTHING) -> Sequence[MessageFacts]:
        return await stored_facts(
            store, session_id, FactReader(info.cwd, (), session.phrases), last, store_missing
        )

    if stored:
        before = _ledger.decode(stored)
    else:  # a branch, or a session stored without a ledger; the next boundary stores it
        found: list[MessageFacts] = []
        if info.parent_id is not None and info.kind != "task":
            for session_id, last in (await store.boundaries.load_reach(info.id))[:-1]:
                found += await read(session_id, last)
        generation = max(0, info.generation - 1)
        before = Ledger().merged(found, messages=len(found), generation=generation, phrases=phrases)
    own = await read(info.id)
    return await asyncio.to_thread(
        before.merged, own, messages=len(session.own_messages), generation=info.generation, phrases=phrases
    )


async def stored_facts(
    store: Store, session_id: str, reader: FactReader, last: int = EVERYTHING, store_missing: bool = False
) -> Sequence[MessageFacts]:
    """The facts of each message of a session up to number `last`; `reader` extracts those not stored."""
    rows = await store.messages.load_facts(session_id, last)
    known = [row for row in rows if row is not None]
    if len(known) == len(rows):
        return await asyncio.to_thread(lambda: [_facts.decode(row) for row in known])
    messages = await store.messages.load(session_id)
    found = await asyncio.to_thread(reader.extract_all, messages)
    if store_missing:
        missing = {
            message.id: one for message, one, row in zip(messages, found, rows, strict=False) if row is None
        }
        await store.messages.save_facts(session_id, missing)
    return found[: len(rows)]


async def take_snapshot(info: SessionInfo, workspace: ToolContext) -> WorkspaceSnapshot:
    """The state beyond the messages: git, jobs, todos and grants."""
    return WorkspaceSnapshot(
        cwd=str(workspace.cwd),
        todos=info.todos,
        jobs=tuple(f"{job.id}: {job.command}" for job in workspace.jobs.running()),
        git=await asyncio.to_thread(_git_state, workspace.cwd),
        grants=info.grants,
    )


def _git_state(cwd: Path) -> tuple[str, ...]:
    """HEAD and the dirty files; empty if git is missing or slow, or `cwd` is not a repository."""
    git = partial(git_output, cwd, timeout_s=GIT_TIMEOUT_S)
    head = git("rev-list", "--max-count=1", "--format=%h %s", "HEAD")
    if not head:
        return ()
    status = git("status", "--porcelain", "--ignore-submodules=all", filters=known_filters(cwd))
    dirty = (status or b"").decode("utf-8", "replace").splitlines()
    lines = [
        f"HEAD {head.decode('utf-8', 'replace').splitlines()[-1]}",
        *(f"dirty: {line}" for line in dirty[:MAX_DIRTY_FILES]),
    ]
    if len(dirty) > MAX_DIRTY_FILES:
        lines.append(f"and {len(dirty) - MAX_DIRTY_FILES} more dirty files")
    return tuple(lines)
