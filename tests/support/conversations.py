"""Conversations of several sessions to put into a store."""

import time
from typing import Any

from crushpy.core.boundary import FactCount, StoredBoundary
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Seed
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from support.stored import a_session, replied, said


async def begun(store: Store, title: str = "fix the test", *texts: str, **fields: Any) -> SessionInfo:
    """A conversation of one session: `texts` are said in turns by the user and the model."""
    info = a_session(title=title, **fields)
    await store.sessions.create(info)
    await told(store, info, *(texts or (title, "Done.")))
    return info


async def told(store: Store, info: SessionInfo, *texts: str) -> None:
    for number, text in enumerate(texts):
        await store.messages.add(info.id, replied(text) if number % 2 else said(text))


async def continued(
    store: Store, parent: SessionInfo, summary: str = "## Goal\nGo on.", *texts: str, **record: Any
) -> SessionInfo:
    """A session that continues `parent` after a boundary; `record` changes what is stored of that."""
    now = time.time()
    child = a_session(
        parent.cwd,
        root_id=parent.root_id,
        parent_id=parent.id,
        kind="continuation",
        generation=parent.generation + 1,
        title=parent.title,
        model=parent.model,
        now=now,
    )
    fields: dict[str, Any] = {
        "trigger": "auto",
        "created_at": now,
        "tokens_before": 75_000,
        "tokens_after": 9_000,
        "summary_source": "model",
        "facts": {"paths": FactCount(4, 2, 3), "commands": FactCount(1, 0, 1)},
        **record,
    }
    seed = Message(new_id(), "user", (Seed(summary, "files changed: a.py"),), created_at=now)
    await store.boundaries.add(
        StoredBoundary(id=new_id(), parent_id=parent.id, child_id=child.id, **fields), child, seed
    )
    await told(store, child, *texts)
    return child
