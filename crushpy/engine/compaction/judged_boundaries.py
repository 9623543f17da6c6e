"""What was needed after the boundaries of a stored conversation, and how much of it had been carried."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from crushpy.context.facts import said_in
from crushpy.context.hindsight import ALL_REPLIES, FIRST_REPLIES, Hindsight, Past, find_needs
from crushpy.context.overrides import apply_overrides
from crushpy.core.boundary import KEEPS_CONTEXT, RETURN, Trigger
from crushpy.core.events import HindsightKnown
from crushpy.core.messages import Data, Message
from crushpy.core.templates import Templates
from crushpy.engine.compaction.pins_and_rules import rule_phrases
from crushpy.engine.compaction.replay import (
    Recording,
    Replay,
    ReplayChanges,
    Replayer,
    load_recording,
    start_text,
)
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

CHARS_PER_TOKEN = 4


class JudgedBoundary(Data, frozen=True, omit_defaults=False):
    """One boundary, seen from later."""

    child_id: str
    """The session that it opened; empty if it is only supposed."""
    trigger: Trigger
    messages: int
    """How many of the conversation precede it."""
    found: Hindsight
    final: bool
    """Nothing that follows can change it."""


async def judge_conversation(
    store: Store, session_id: str, settings: Settings, models: Models, window: int | None = None
) -> list[JudgedBoundary]:
    """The boundaries of a conversation up to this session. Without one, or for another `window`: those that
    `auto` would have made."""
    recording = await load_recording(store, session_id, rule_phrases(Templates()))

    def judge() -> list[JudgedBoundary]:
        stored = [] if window else _stored(recording)
        return stored or _supposed(store, recording, settings, models, window)

    return await asyncio.to_thread(judge)


async def judge_stored(store: Store, session_id: str) -> dict[str, HindsightKnown]:
    """What is known of the boundaries up to this session, by the session that each opened."""
    recording = await load_recording(store, session_id, rule_phrases(Templates()))
    judged = await asyncio.to_thread(_stored, recording)
    return {
        boundary.child_id: hindsight_event(boundary.child_id, boundary.found, final=boundary.final)
        for boundary in judged
        if boundary.found.replies >= FIRST_REPLIES
    }


async def replay_judged(
    store: Store, session_id: str, settings: Settings, models: Models, changes: Iterable[ReplayChanges]
) -> list[Replay]:
    """Like `replay_session`, with the names that were needed after each boundary."""
    recording = await load_recording(store, session_id, rule_phrases(Templates()))

    def walk(change: ReplayChanges) -> Replay:
        replayer = Replayer(store, recording, settings, models, change)
        replay = asyncio.run(replayer.run())
        found = [judged.found for judged in _replayed(recording, replay, replayer.starts)]
        known = [judged for judged in found if judged.replies >= FIRST_REPLIES]
        names = sum(len(judged.names) for judged in known), sum(judged.carried for judged in known)
        return replace(replay, names=names)

    return await asyncio.to_thread(lambda: [walk(change) for change in changes])


def _stored(recording: Recording) -> list[JudgedBoundary]:
    before: list[Message] = []
    starts: list[tuple[str, Trigger, int, str]] = []
    for session in recording.sessions:
        made = session.boundary
        if made is not None and made.trigger not in (*KEEPS_CONTEXT, RETURN):
            starts.append((session.info.id, made.trigger, len(before), start_text(session.start)))
        before += [message for message, _ in session.own]
    return _judge(before, starts, recording.sessions[-1].info.cwd)


def without_usage(recording: Recording) -> Recording:
    """The recording as if it were one of crushpy: another agent's usage tells the size of its own prompts."""
    if not recording.imported:
        return recording
    sessions = [
        replace(session, own=tuple((replace(message, usage=None), facts) for message, facts in session.own))
        for session in recording.sessions
    ]
    return replace(recording, sessions=tuple(sessions), imported=frozenset[str](), reported=False)


def _supposed(
    store: Store, recording: Recording, settings: Settings, models: Models, window: int | None
) -> list[JudgedBoundary]:
    changes = ReplayChanges(window=window, method="auto")
    replayer = Replayer(store, without_usage(recording), settings, models, changes)
    return _replayed(recording, asyncio.run(replayer.run()), replayer.starts)


def _replayed(recording: Recording, replay: Replay, texts: Sequence[str]) -> list[JudgedBoundary]:
    messages = [message for session in recording.sessions for message, _ in session.own]
    starts: list[tuple[str, Trigger, int, str]] = [
        ("", boundary.trigger, boundary.number, text)
        for boundary, text in zip(replay.boundaries, texts, strict=True)
    ]
    return _judge(messages, starts, recording.sessions[-1].info.cwd)


def _judge(
    messages: Sequence[Message], starts: Sequence[tuple[str, Trigger, int, str]], cwd: str
) -> list[JudgedBoundary]:
    ends = [place for _, _, place, _ in starts[1:]] + [len(messages)]
    found: list[JudgedBoundary] = []
    past, known = Past((), cwd), 0
    for (child, trigger, place, start), end in zip(starts, ends, strict=False):
        past.add(messages[known:place])
        known = place
        judged = find_needs(past, messages[place:end], size=_size).judge(start)
        final = judged.replies >= ALL_REPLIES or end < len(messages)
        found.append(JudgedBoundary(child, trigger, place, judged, final))
    return found


def _size(message: Message) -> int:
    return message.tokens or len(said_in(message)) // CHARS_PER_TOKEN


def hindsight_event(child_id: str, found: Hindsight, *, final: bool) -> HindsightKnown:
    sizes = len(found.names), found.carried, len(found.read_again), found.again_tokens
    return HindsightKnown(child_id, *sizes, final=final)


async def judge_session(store: Store, session: LiveSession, *, final: bool) -> HindsightKnown:
    """What was needed since the boundary that opened this session."""
    reach = await store.boundaries.load_reach(session.info.id)
    before: list[Message] = []
    for name, last in reach[:-1]:
        before += await store.messages.load_readable(name, last)
    own = session.own_messages
    start = session.history[: len(session.history) - len(own)]
    carried = start_text(apply_overrides(start, session.overrides))
    cwd = session.info.cwd
    found = await asyncio.to_thread(lambda: find_needs(Past(before, cwd), own, size=_size).judge(carried))
    return hindsight_event(session.info.id, found, final=final)


def shares(found: Sequence[Hindsight], key: str) -> dict[str, tuple[int, int]]:
    """By `kind` or by `said_by`: how many names were needed, and how many of them had been carried."""
    needed, carried = Counter[str](), Counter[str]()
    for name in (name for judged in found for name in judged.names):
        needed[getattr(name, key)] += 1
        carried[getattr(name, key)] += name.carried
    return {value: (count, carried[value]) for value, count in needed.most_common()}
