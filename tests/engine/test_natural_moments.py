"""Natural moments through the real engine: they prepare, they cross what is ready, nobody waits."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.events import BoundaryCommitted, Compacting, PreparationChanged
from crushpy.core.messages import Usage
from crushpy.core.paths import Paths
from crushpy.storage.store import Store

WINDOW = {f'models."{MODEL}".context_window': 10_000}
SOFT = 6_100  # above 0.60, below 85% of the threshold
NOTES = Reply("## Goal\nNotes.", usage=Usage(100, 50))
BASH = Call("bash", {"command": "echo work"})


def todos(*statuses: str) -> Call:
    items = [{"text": f"todo {n}", "status": status} for n, status in enumerate(statuses)]
    return Call("todos", {"todos": items})


def is_summary(body: dict[str, Any]) -> bool:
    return "<transcript>" in json.dumps(body["messages"][-1])


def plays(*steps: tuple[Call | str, int], summary: Answer = NOTES) -> Callable[[dict[str, Any]], Answer]:
    """Makes these calls (or says these words), each with the usage it reports."""
    left = iter(steps)

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return summary
        what, used = next(left, ("Done.", 900))
        usage = Usage(used - 10, 10)
        return Reply(what, usage=usage) if isinstance(what, str) else Reply(calls=[what], usage=usage)

    return answer


def states(talk: Talk) -> list[tuple[str, str]]:
    return [(event.state, event.moment) for event in talk.of(PreparationChanged)]


async def test_a_moment_prepares_and_the_next_one_crosses_what_is_ready(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(plays((todos("in_progress", "pending"), 1_000), (BASH, 2_000), ("Begun.", SOFT)))
    talk = await talks(flags=WINDOW, yolo=True)
    assert await talk.ask("two things") == "done"
    llm.always(plays((todos("completed", "in_progress"), SOFT), ("Half of it.", SOFT)))
    assert await talk.ask("go on") == "done"
    await talk.until(lambda: len(states(talk)) == 2)
    assert states(talk) == [("preparing", "todo done"), ("ready", "todo done")]
    llm.always(plays((BASH, SOFT), (todos("completed", "completed"), SOFT), ("All of it.", 900)))
    assert await talk.ask("go on") == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert (boundary.trigger, boundary.prepared, boundary.moment) == ("auto", True, "todo done")
    assert boundary.tokens_before < 7_500
    store = Store(Paths().database)
    (stored,) = await store.boundaries.load_conversation(boundary.parent_id)
    await store.close()
    assert (stored.moment, stored.prepared, stored.trigger) == ("todo done", True, "auto")


async def test_a_moment_never_waits_for_what_is_not_ready(talks: Talks, llm: ScriptedLLM) -> None:
    held = Stall(NOTES, after=0)
    llm.always(plays((BASH, 1_000), (BASH, 2_000), ("ok", SOFT)))
    talk = await talks(flags=WINDOW, yolo=True)
    await talk.ask("one")
    for prompt in ("two", "three", "four"):  # each of them a moment
        llm.always(plays(("ok", SOFT), summary=held))
        assert await talk.ask(prompt) == "done"
    await talk.until(lambda: bool(states(talk)))
    assert states(talk) == [("preparing", "new prompt")] and not talk.of(Compacting)
    llm.release()
    await talk.until(lambda: len(states(talk)) == 2)
    llm.always(plays(("ok", 900)))
    await talk.ask("five")
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.moment == "new prompt"
    assert sum(is_summary(request.body) for request in llm.requests) == 1


async def test_threshold_boundary_records_no_moment(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(plays((BASH, 1_000), (BASH, 2_000), ("ok", SOFT)))
    talk = await talks(flags=WINDOW, yolo=True)
    await talk.ask("one")
    llm.always(plays((todos("pending"), SOFT), ("ok", SOFT)))
    await talk.ask("two")
    await talk.until(lambda: ("ready", "new prompt") in states(talk))
    llm.always(plays((BASH, 7_600), ("ok", 900)))
    await talk.ask("three")
    (boundary,) = talk.of(BoundaryCommitted)
    assert (boundary.moment, boundary.prepared) == ("", True)


@pytest.mark.parametrize(
    "flags",
    [
        {"compaction.moments": False},
        {"compaction.prepare": False},
        {"compaction.threshold": "off"},
        {"compaction.threshold": 0.6},
        {"compaction.soft_threshold": 0.75},
        {"compaction.soft_threshold": 0.62},
    ],
)
async def test_moments_are_ignored_where_they_are_off_or_of_no_use(
    talks: Talks, llm: ScriptedLLM, flags: dict[str, object]
) -> None:
    used = 5_000 if flags.get("compaction.threshold") == 0.6 else SOFT
    llm.always(plays((BASH, 1_000), (BASH, 2_000), ("ok", used), ("ok", used), ("ok", used)))
    talk = await talks(flags={**WINDOW, **flags}, yolo=True)
    for prompt in ("one", "two", "three"):
        await talk.ask(prompt)
    assert not states(talk) and not talk.of(BoundaryCommitted)


async def test_moment_only_prepares_when_review_is_on(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(plays((BASH, 1_000), (BASH, 2_000), ("ok", SOFT)))
    talk = await talks(flags={**WINDOW, "compaction.review": "ask"}, yolo=True, interactive=True)
    await talk.ask("one")
    for prompt in ("two", "three"):
        llm.always(plays(("ok", SOFT)))
        assert await asyncio.wait_for(talk.ask(prompt), 30) == "done"
        await talk.until(lambda: ("ready", "new prompt") in states(talk))
    assert not talk.of(BoundaryCommitted)


async def test_an_undone_session_waits_for_its_threshold(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(plays((BASH, 1_000), (BASH, 2_000), ("ok", SOFT)))
    talk = await talks(flags=WINDOW, yolo=True)
    await talk.ask("one")
    llm.always(NOTES)
    assert await talk.conversation.context.compact()
    assert await talk.conversation.context.undo_compaction()
    llm.always(plays(("ok", SOFT), ("ok", SOFT)))
    await talk.ask("two")
    await talk.ask("three")
    assert not states(talk)


@pytest.mark.slow
async def test_moment_is_only_named_in_the_status_in_llm(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(
        plays(
            (todos("in_progress", "pending"), 1_000),
            (todos("completed", "pending"), 2_000),
            (todos("completed", "completed"), SOFT),
            (BASH, SOFT),
            ("Done.", SOFT),
        )
    )
    talk = await talks(flags={**WINDOW, "compaction.method": "llm"}, yolo=True)
    await talk.ask("two things")
    statuses = [request.body["messages"][-1]["content"] for request in llm.requests]
    hinted = ["moment" in status for status in statuses]
    assert hinted == [False, False, False, True, False], "only where the window is full enough to matter"
    assert '"moment":"todo done"}</context_status>' in statuses[3]
    assert not states(talk)
