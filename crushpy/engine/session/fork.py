"""Makes branches: of a session as it is now, or as it was once a message had been said. Copies no message."""

import time

import msgspec

from crushpy.context.partition import units
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Seed, Usage
from crushpy.engine.session.session import LoadedSession, load_session
from crushpy.storage.records import BoundaryInfo, SessionInfo
from crushpy.storage.store import Store


class _ForkPoint(Data, frozen=True):
    """Where a branch leaves, and what it starts with."""

    parent: SessionInfo
    """The session in which the last message was said."""
    viewed: LoadedSession
    """The session whose view of the history the branch takes over, with its edits."""
    history: tuple[Message, ...]
    before: Usage


async def fork_session(
    store: Store, source: SessionInfo, at: str = "", *, before: bool = False, fork_id: str = ""
) -> LoadedSession:
    """A branch that goes on from `source`, beside whoever works there; the session itself is left alone.

    With `at`, an id or the beginning of one, it holds everything up to that message, with all its results, or
    everything `before` it. The message may be one of `source` or of the sessions before it.
    """
    point = await (_at_message(store, source, at, before=before) if at else _at_end(store, source))
    now = time.time()
    info = msgspec.structs.replace(
        source,
        id=fork_id or new_id(),
        parent_id=point.parent.id,
        kind="fork",
        generation=point.viewed.info.generation,
        system=point.viewed.info.system,
        created_at=now,
        updated_at=now,
        ended_at=None,
        end_reason="",
        message_count=0,
        usage=Usage(),
    )
    tail = tuple(message.id for message in point.history)
    cuts = tuple(cut for cut in point.viewed.cuts if cut.message_id in set(tail))
    boundary = BoundaryInfo(new_id(), point.parent.id, info.id, "fork", now, tail)
    await store.boundaries.add(boundary, info, None, cuts=cuts)
    marks = tuple(mark for mark in point.viewed.marks if mark.after in set(tail))
    return LoadedSession(info, point.history, cuts, inherited=len(tail), before=point.before, marks=marks)


async def _at_end(store: Store, source: SessionInfo) -> _ForkPoint:
    loaded = await load_session(store, source, read_only=True)
    return _ForkPoint(source, loaded, loaded.history, loaded.before + source.usage)


async def _at_message(store: Store, source: SessionInfo, at: str, *, before: bool) -> _ForkPoint:
    place = await store.messages.find(at, within=source.id)
    lineage = await store.sessions.load_lineage(source.id)
    owner = next(number for number, one in enumerate(lineage) if one.id == place.session_id)
    viewed = owner
    for number in range(owner + 1, len(lineage)):  # branches show what was said before them as it was
        if await store.boundaries.find_opening(lineage[number].id) is not None:
            break
        viewed = number
    loaded = await load_session(store, lineage[viewed], read_only=True)
    history = _up_to(loaded, place.message_id, before=before)
    if history and _is_seed(
        history[-1]
    ):  # a session at its birth: what was carried into it came with the seed
        loaded = await load_session(store, lineage[owner], read_only=True)
        history = loaded.history[: loaded.inherited]
    tasks = await store.usage.sum_tasks(source.root_id)
    used = sum((one.usage for one in lineage[: owner + 1]), tasks)
    return _ForkPoint(lineage[owner], loaded, history, used)


def _up_to(loaded: LoadedSession, message_id: str, *, before: bool) -> tuple[Message, ...]:
    """The history to the end of the unit that holds this message, or to its beginning."""
    kept: list[Message] = []
    for unit in units(loaded.history):
        here = any(message.id == message_id for message in unit)
        if not (here and before):
            kept += unit
        if here:
            break
    return tuple(kept)


def _is_seed(message: Message) -> bool:
    return any(isinstance(part, Seed) for part in message.parts)
