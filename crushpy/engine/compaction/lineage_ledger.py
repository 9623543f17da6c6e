"""The facts of a whole lineage, as the boundary at its end carries them on."""

import asyncio

import msgspec

from crushpy.context.ledger import Ledger
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store


async def lineage_ledger(session: LiveSession, store: Store) -> Ledger:
    """The facts of the whole lineage, this session included. No ancestor's messages are read for it."""
    stored = await store.ledger(session.info.id)
    if stored:
        before = msgspec.json.decode(stored, type=Ledger)
    else:
        before = await _ledger_of_ancestors(session, store)
    return await asyncio.to_thread(
        before.extended, session.own_messages, cwd=session.info.cwd, generation=session.info.generation
    )


async def _ledger_of_ancestors(session: LiveSession, store: Store) -> Ledger:
    """For branches and for sessions stored without one: read once, kept from the next boundary on."""
    info = session.info
    if info.parent_id is None or info.kind == "task":
        return Ledger()
    own = {message.id for message in session.own_messages}
    lineage = await store.lineage_messages(info.id)
    earlier = [message for message in lineage if message.id not in own]
    return Ledger().extended(earlier, cwd=info.cwd, generation=max(0, info.generation - 1))
