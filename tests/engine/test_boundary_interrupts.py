"""Esc at every stage: wherever it comes, what is held is what is stored, and the conversation goes on."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Overflow, Reply
from scripted_llm.server import ScriptedLLM
from support.selection import ALL
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import BoundaryCommitted, BranchOpened, ReviewNeeded
from crushpy.core.messages import Usage
from crushpy.core.paths import Paths
from crushpy.engine.session.session import load_session
from crushpy.storage.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.sampled]
WINDOW = {f'models."{MODEL}".context_window': 10_000}
Stage = tuple[str, ...]
STARTS = ("_run", "compact", "_undo", "uncancellable")
"""What a task of the engine begins with."""


def awaited(coroutine: Any) -> Iterator[str]:
    """The names of our own functions in which a coroutine waits, from the outside in."""
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "ag_code", None)
        if code is None:
            return
        if "crushpy" in code.co_filename:
            yield code.co_name
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)


def stage() -> Stage:
    """Where the running turn (or what was asked for by hand) waits at this moment."""
    running = [tuple(awaited(task.get_coro())) for task in asyncio.all_tasks()]
    return max((names for names in running if names and names[0] in STARTS), key=len, default=())


async def watched(work: Awaitable[Any], seen: Callable[[Stage], None]) -> Any:
    """Looks at every turn of the loop where `work` stands."""
    task = asyncio.ensure_future(work)
    while not task.done():
        here = stage()
        if here:
            seen(here)
        await asyncio.sleep(0)
    return task.result()


def is_summary(body: dict[str, Any]) -> bool:
    return "<transcript>" in json.dumps(body["messages"][-1])


def valid(body: dict[str, Any]) -> None:
    """What a provider insists on."""
    messages = [message for message in body["messages"] if message["role"] != "system"]
    assert messages[0]["role"] == "user"
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        waiting = [call["id"] for call in message.get("tool_calls") or []]
    assert not waiting


async def check(talk: Talk) -> None:
    """What is held in memory is what is stored, boundaries included."""
    conversation = talk.conversation
    store = Store(Paths().database)
    try:
        tip = await store.sessions.find_tip(conversation.info.root_id)
        assert tip.id == conversation.info.id
        assert tip.ended_at is None
        loaded = await load_session(store, tip, read_only=True)
        stored = [message.id for message in loaded.history if message.created_at]
        held = [message.id for message in conversation.history]
        # Calls that were never begun get their results when a session is loaded.
        assert stored[: len(held)] == held
        opened = talk.of(BoundaryCommitted, BranchOpened)
        assert len(await store.boundaries.load_conversation(tip.root_id)) == len(opened)
        assert await store.check() == []
    finally:
        await store.close()


async def esc_everywhere(
    talks: Talks,
    llm: ScriptedLLM,
    script: Callable[[], Callable[[dict[str, Any]], Answer]],
    work: Callable[[Talk], Awaitable[Any]],
    *,
    prepare: Callable[[Talk], Awaitable[None]] | None = None,
    expect: tuple[str, ...],
    **wanted: Any,
) -> int:
    """Runs `work` once to see its stages, then again for each function that waits, interrupted there."""

    async def begin() -> Talk:
        llm.always(script())
        talk = await talks(yolo=True, **wanted)
        if prepare is not None:
            await prepare(talk)
        return talk

    stages: dict[Stage, None] = {}
    talk = await begin()
    await watched(work(talk), stages.setdefault)
    await check(talk)
    await talk.close()
    names = {name for here in stages for name in here}
    assert set(expect) <= names, f"never came to {set(expect) - names}"
    deepest = {here[-1]: here for here in stages}
    for wanted_stage in stages if ALL else deepest.values():
        talk = await begin()
        done = False

        def interrupt(here: Stage, talk: Talk = talk, wanted_stage: Stage = wanted_stage) -> None:
            nonlocal done
            if here == wanted_stage and not done:
                done = True
                talk.conversation.interrupt()

        await asyncio.wait_for(watched(work(talk), interrupt), 60)
        assert not talk.conversation.busy, wanted_stage
        await check(talk)
        llm.always("Going on.")
        assert await talk.ask("go on") == "done", wanted_stage
        valid(llm.requests[-1].body)
        await check(talk)
        await talk.close()
        llm.requests.clear()
    return len(stages)


async def test_esc_anywhere_in_an_auto_boundary(talks: Talks, llm: ScriptedLLM) -> None:
    def script() -> Callable[[dict[str, Any]], Answer]:
        used = iter((1_000, 7_600, 900))

        def answer(body: dict[str, Any]) -> Answer:
            if is_summary(body):
                return Reply("Notes.", usage=Usage(900, 9))
            tokens = next(used, None)
            if tokens is None:
                return Reply("Done.", usage=Usage(900, 9))
            calls = [Call("bash", {"command": f"echo {tokens}"}), Call("ls", {})]
            return Reply("Working.", calls=calls, usage=Usage(tokens, 9))

        return answer

    count = await esc_everywhere(
        talks,
        llm,
        script,
        lambda talk: talk.ask("work"),
        flags=WINDOW,
        expect=("make_boundary", "_summarize", "evidence"),
    )
    assert count >= 12


async def test_esc_anywhere_in_a_new_session(talks: Talks, llm: ScriptedLLM) -> None:
    def script() -> Callable[[dict[str, Any]], Answer]:
        steps = iter(
            (
                Reply("Look.", calls=[Call("bash", {"command": "echo 1"})]),
                Reply(
                    "Afresh.",
                    calls=[Call("new_session", {"summary": "s"}), Call("bash", {"command": "echo 2"})],
                ),
                Reply("More.", calls=[Call("bash", {"command": "echo 3"})]),
            )
        )
        return lambda body: next(steps, Reply("Done."))

    await esc_everywhere(
        talks,
        llm,
        script,
        lambda talk: talk.ask("work"),
        flags={"compaction.method": "llm"},
        expect=("_change_session", "new_session", "make_boundary"),
    )


async def test_esc_anywhere_in_a_branch(talks: Talks, llm: ScriptedLLM) -> None:
    def script() -> Callable[[dict[str, Any]], Answer]:
        steps = iter(
            (
                Reply(
                    "Aside.", calls=[Call("branch", {"goal": "look"}), Call("bash", {"command": "echo 1"})]
                ),
                Reply("Look.", calls=[Call("bash", {"command": "echo 2"})]),
                Reply("Back.", calls=[Call("return_to_parent", {"result": "seen"})]),
            )
        )
        return lambda body: next(steps, Reply("Done."))

    async def work(talk: Talk) -> None:
        await talk.ask("work")
        assert talk.conversation.info.kind == "root"

    await esc_everywhere(
        talks,
        llm,
        script,
        work,
        flags={"compaction.method": "llm"},
        expect=("_change_session", "open", "close"),
    )


async def test_esc_anywhere_in_the_recovery_from_an_overflow(talks: Talks, llm: ScriptedLLM) -> None:
    def script() -> Callable[[dict[str, Any]], Answer]:
        calls = [Call("bash", {"command": "seq 1 3000"})]
        steps = iter((Reply(calls=calls), Reply(calls=calls), Overflow(), Overflow()))
        return lambda body: Reply("Notes.") if is_summary(body) else next(steps, Reply("Done."))

    await esc_everywhere(
        talks,
        llm,
        script,
        lambda talk: talk.ask("work"),
        flags={f'models."{MODEL}".context_window': 100_000},
        expect=("recover_from_overflow", "_shorten_results", "make_boundary"),
    )


async def test_esc_anywhere_in_a_compact_by_hand_and_its_undo(talks: Talks, llm: ScriptedLLM) -> None:
    def script() -> Callable[[dict[str, Any]], Answer]:
        return lambda body: Reply("Notes." if is_summary(body) else "ok")

    async def prepare(talk: Talk) -> None:
        await talk.ask("one")
        await talk.ask("two")

    async def work(talk: Talk) -> None:
        await talk.conversation.context.compact()
        await talk.conversation.context.undo_compaction()

    await esc_everywhere(
        talks, llm, script, work, prepare=prepare, expect=("make_boundary", "_summarize"), flags=WINDOW
    )


async def test_esc_while_a_summary_waits_for_the_users_word_changes_nothing(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(lambda body: Reply("Notes." if is_summary(body) else "ok"))
    talk = await talks(interactive=True)
    await talk.ask("one")
    await talk.ask("two")
    compacting = asyncio.create_task(talk.conversation.context.compact(review=True))
    await talk.until_event(ReviewNeeded)
    talk.conversation.interrupt()
    assert not await compacting
    assert not talk.of(BoundaryCommitted)
    await check(talk)
    assert await talk.ask("go on") == "done"
