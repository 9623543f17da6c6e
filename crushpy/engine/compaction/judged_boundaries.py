"""What was needed after the boundaries of a stored conversation, and how much of it had been carried."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from crushpy.context.facts import said_in
from crushpy.context.hindsight import ALL_REPLIES, FIRST_REPLIES, Hindsight, look_back
from crushpy.core.boundary import KEEPS_CONTEXT, RETURN
from crushpy.core.messages import Data, Message, counted, short_count
from crushpy.core.templates import Templates
from crushpy.engine.compaction.pins_and_rules import rule_phrases
from crushpy.engine.compaction.replay import (
    Recording,
    ReplayChanges,
    Replayer,
    load_recording,
    start_text,
)
from crushpy.engine.models import Models
from crushpy.settings.schema import Settings
from crushpy.storage.store import Store

CHARS_PER_TOKEN = 4


class JudgedBoundary(Data, frozen=True, omit_defaults=False):
    """One boundary, seen from later."""

    child_id: str
    """The session that it opened; empty if it is only supposed."""
    trigger: str
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


def _stored(recording: Recording) -> list[JudgedBoundary]:
    before: list[Message] = []
    starts: list[tuple[str, str, int, str]] = []
    for session in recording.sessions:
        made = session.boundary
        if made is not None and made.trigger not in (*KEEPS_CONTEXT, RETURN):
            starts.append((session.info.id, made.trigger, len(before), start_text(session.start)))
        before += [message for message, _ in session.own]
    return _judge(before, starts, recording.sessions[-1].info.cwd)


def _supposed(
    store: Store, recording: Recording, settings: Settings, models: Models, window: int | None
) -> list[JudgedBoundary]:
    changes = ReplayChanges(window=window, method="auto")
    replayer = Replayer(store, recording, settings, models, changes)
    made = asyncio.run(replayer.run()).boundaries
    messages = [message for session in recording.sessions for message, _ in session.own]
    starts = [
        ("", boundary.trigger, boundary.number, start)
        for boundary, start in zip(made, replayer.starts, strict=True)
    ]
    return _judge(messages, starts, recording.sessions[-1].info.cwd)


def _judge(
    messages: Sequence[Message], starts: Sequence[tuple[str, str, int, str]], cwd: str
) -> list[JudgedBoundary]:
    ends = [place for _, _, place, _ in starts[1:]] + [len(messages)]
    found: list[JudgedBoundary] = []
    for (child, trigger, place, start), end in zip(starts, ends, strict=False):
        judged = look_back(messages[:place], start, messages[place:end], cwd=cwd, size=_size)
        final = judged.replies >= ALL_REPLIES or end < len(messages)
        found.append(JudgedBoundary(child, trigger, place, judged, final))
    return found


def _size(message: Message) -> int:
    return message.tokens or len(said_in(message)) // CHARS_PER_TOKEN


def hindsight_words(found: Hindsight) -> str:
    """In one line; empty if it is too early to tell."""
    if found.replies < FIRST_REPLIES:
        return ""
    words = f"needed since: {counted(len(found.names), 'name')}, {found.carried} had been carried"
    if found.again_tokens:
        again = [counted(len(found.read_again), "file")] if found.read_again else []
        again += [f"{found.searched_again} times the same search"] if found.searched_again else []
        words += f"; looked up again: {', '.join(again)} ({short_count(found.again_tokens)} tokens)"
    return words


def shares(found: Sequence[Hindsight], key: str) -> dict[str, tuple[int, int]]:
    """By `kind` or by `said_by`: how many names were needed, and how many of them had been carried."""
    needed, carried = Counter[str](), Counter[str]()
    for name in (name for judged in found for name in judged.names):
        needed[getattr(name, key)] += 1
        carried[getattr(name, key)] += name.carried
    return {value: (count, carried[value]) for value, count in needed.most_common()}
