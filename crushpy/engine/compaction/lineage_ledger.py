"""The facts of a whole lineage, as the boundary at its end carries them on."""

import asyncio
from collections.abc import Sequence

import msgspec

from crushpy.context.ledger import Ledger
from crushpy.context.message_facts import FactReader, MessageFacts
from crushpy.engine.session.session import LiveSession
from crushpy.storage.records import EVERYTHING, SessionInfo
from crushpy.storage.store import Store

_facts = msgspec.json.Decoder(MessageFacts)
_ledger = msgspec.json.Decoder(Ledger)


async def lineage_ledger(session: LiveSession, store: Store, *, keep: bool) -> Ledger:
    """The facts of the whole lineage, this session included. No message is read for it: each was stored with
    its facts. Where some were not, they are read off once, and stored then if they are to be kept."""
    info = session.info
    stored = await store.boundaries.load_ledger(info.id)
    before = _ledger.decode(stored) if stored else await _ledger_of_ancestors(info, store, keep=keep)
    own = await _stored_facts(store, info.id, info.cwd, keep=keep)
    return before.merged(own, messages=len(session.own_messages), generation=info.generation)


async def _ledger_of_ancestors(info: SessionInfo, store: Store, *, keep: bool) -> Ledger:
    """For branches and for sessions stored without one; kept from the next boundary on."""
    found: list[MessageFacts] = []
    if info.parent_id is not None and info.kind != "task":
        for session_id, last in (await store.boundaries.load_reach(info.id))[:-1]:
            found += await _stored_facts(store, session_id, info.cwd, last, keep=keep)
    return Ledger().merged(found, messages=len(found), generation=max(0, info.generation - 1))


async def _stored_facts(
    store: Store, session_id: str, cwd: str, last: int = EVERYTHING, *, keep: bool
) -> Sequence[MessageFacts]:
    """Of each message of a session up to number `last`."""
    rows = await store.messages.load_facts(session_id, last)
    known = [row for row in rows if row is not None]
    if len(known) == len(rows):
        return await asyncio.to_thread(lambda: [_facts.decode(row) for row in known])
    messages = await store.messages.load(session_id)
    found = await asyncio.to_thread(FactReader(cwd).all_of, messages)
    if keep:
        missing = {
            message.id: one for message, one, row in zip(messages, found, rows, strict=False) if row is None
        }
        await store.messages.save_facts(session_id, missing)
    return found[: len(rows)]
