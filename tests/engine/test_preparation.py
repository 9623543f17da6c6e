"""Prepared boundaries through the real engine: the summary is made beside the turn, once; nobody waits."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Fail, Overflow, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.context.edits import ContextEdit
from crushpy.core.events import (
    BoundaryCommitted,
    Compacting,
    Notice,
    PreparationChanged,
    Retry,
    ReviewNeeded,
    ToolFinished,
)
from crushpy.core.messages import Seed, Usage
from crushpy.core.paths import Paths
from crushpy.engine.compaction.draft import Verdict
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

WINDOW = {
    f'models."{MODEL}".context_window': 10_000,
    f'models."{MODEL}".input_cost': 100.0,
    "compaction.moments": False,
}
NEARLY = 6_400  # 85% of the threshold are 6,375
FULL = 7_600
NOTES = Reply("## Goal\nPrepared notes.", usage=Usage(1_000, 50))
HELD = Stall(NOTES, after=0)


def is_summary(body: dict[str, Any]) -> bool:
    return "<transcript>" in json.dumps(body["messages"][-1])


def summaries(llm: ScriptedLLM) -> list[str]:
    found = [request.body["messages"] for request in llm.requests if is_summary(request.body)]
    return [json.dumps(messages) for messages in found]


def model(*used: int, summary: Answer = NOTES, command: str = "echo step-{n}") -> Callable[..., Answer]:
    """Runs a command for each usage it reports but the last, with which it stops; then the next such turn."""
    steps = iter(enumerate(used))

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return summary
        number, tokens = next(steps, (len(used), 900))
        usage = Usage(tokens - 10, 10)
        if number >= len(used) - 1:
            return Reply("Done.", usage=usage)
        return Reply(calls=[Call("bash", {"command": command.format(n=number)})], usage=usage)

    return answer


def states(talk: Talk) -> list[str]:
    return [event.state for event in talk.of(PreparationChanged)]


async def until_ready(talk: Talk) -> None:
    await talk.until(lambda: "ready" in states(talk))


async def with_one(talks: Talks, llm: ScriptedLLM, summary: Answer = NOTES, **wanted: Any) -> Talk:
    """A conversation whose next boundary is being prepared."""
    flags = {**WINDOW, **wanted.pop("flags", {})}
    llm.always(model(1_000, 2_000, NEARLY, NEARLY + 20, summary=summary))
    talk = await talks(flags=flags, yolo=True, **wanted)
    assert await talk.ask("Begin the work") == "done"
    await llm.wait_requests(5)
    await talk.until(lambda: bool(states(talk)))
    return talk


async def stored_boundaries(talk: Talk) -> Any:
    store = Store(Paths().database)
    try:
        return await store.boundaries.load_conversation(talk.conversation.info.root_id)
    finally:
        await store.close()


async def test_summary_is_prepared_from_85_percent_and_used_at_the_boundary(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    assert talk.conversation.context.preparation == "ready"
    llm.always(model(FULL, 900))
    assert await talk.ask("Go on") == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert (boundary.trigger, boundary.prepared, boundary.moment) == ("auto", True, "")
    assert states(talk) == ["preparing", "ready", "used"]
    assert len(summaries(llm)) == 1, "nobody was asked again"
    assert "step-0" in summaries(llm)[0] and "Go on" not in summaries(llm)[0]
    seed = talk.conversation.history[0].parts[0]
    assert isinstance(seed, Seed) and "Prepared notes." in seed.summary
    child = json.dumps(llm.requests[-1].body["messages"])
    assert "Go on" in child and "Begin the work" in seed.evidence
    (stored,) = await stored_boundaries(talk)
    assert (stored.prepared, stored.moment, stored.waited_ms) == (True, "", boundary.waited_ms)
    assert stored.summary_model == MODEL and stored.template == "shipped" and stored.facts
    assert talk.conversation.context.preparation == ""


async def test_summary_is_prepared_from_85_percent_when_turns_have_one_call(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await talks(flags=WINDOW, yolo=True)
    for used in (2_000, 6_200, NEARLY):
        assert states(talk) == []
        llm.always(model(used))
        assert await talk.ask("Tell me more: " + "some words " * 400) == "done"
    await until_ready(talk)


async def test_a_boundary_records_how_long_the_turn_waited_for_its_summary(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always(model(1_000, 2_000, summary=HELD))
    talk = await talks(flags=WINDOW, yolo=True)
    assert await talk.ask("Begin the work") == "done"
    asked = time.monotonic()
    compaction = asyncio.create_task(talk.conversation.context.compact())
    await talk.until_event(Compacting)
    begun = time.monotonic()
    await llm.wait_requests(3)
    requested = time.monotonic()
    llm.release()
    assert await compaction
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.waited_ms >= int((requested - begun) * 1_000) and boundary.waited_ms > 0
    assert boundary.waited_ms <= (time.monotonic() - asked) * 1_000 + 1
    (stored,) = await stored_boundaries(talk)
    assert stored.waited_ms == boundary.waited_ms


async def test_the_faster_the_window_fills_the_earlier_it_is_prepared(talks: Talks, llm: ScriptedLLM) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        command = f"yes some words of log number {len(llm.requests)} | head -n 300"
        return NOTES if is_summary(body) else Reply(calls=[Call("bash", {"command": command})])

    llm.always(answer)
    flags = {**WINDOW, f'models."{MODEL}".context_window': 60_000}
    talk = await talks(flags=flags, yolo=True)
    used: list[int] = []

    def hear(event: object) -> None:
        if isinstance(event, PreparationChanged) and event.state == "preparing":
            used.append(talk.conversation.context.budget().used)

    talk.conversation.subscribe(hear)
    turn = asyncio.create_task(talk.ask("Read the logs"))
    boundary = await talk.until_event(BoundaryCommitted)
    talk.conversation.interrupt()
    await turn
    assert 0.5 * 45_000 <= used[0] < 0.85 * 45_000, "a step takes milliseconds, the first summary 8 s"
    assert "discarded" not in states(talk) and boundary.trigger == "auto" and len(summaries(llm)) == 1


async def test_below_that_nothing_is_prepared(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(model(1_000, 6_300))
    talk = await talks(flags=WINDOW, yolo=True)
    await talk.ask("go")
    assert not states(talk) and not summaries(llm)


@pytest.mark.parametrize(
    "flags", [{"compaction.prepare": False}, {"compaction.threshold": "off"}, {"compaction.method": "llm"}]
)
async def test_preparation_is_off_by_setting_threshold_or_method(
    talks: Talks, llm: ScriptedLLM, flags: dict[str, object]
) -> None:
    llm.always(model(1_000, 2_000, NEARLY, 7_000, 7_300))
    talk = await talks(flags={**WINDOW, **flags}, yolo=True)
    await talk.ask("go")
    assert not states(talk) and not summaries(llm)


async def test_the_turn_goes_on_while_one_is_on_its_way_on_a_connection_of_its_own(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await with_one(talks, llm, HELD)
    assert talk.conversation.context.preparation == "preparing"
    llm.always(model(NEARLY, NEARLY, NEARLY))
    assert await talk.ask("Go on") == "done"
    assert talk.conversation.context.preparation == "preparing" and not talk.of(Compacting)
    llm.release()
    await until_ready(talk)
    assert states(talk) == ["preparing", "ready"]


async def test_a_boundary_that_comes_too_early_takes_over_the_call_in_flight(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await with_one(talks, llm, HELD)
    llm.always(model(FULL, 900))
    turn = asyncio.create_task(talk.ask("Go on"))
    await talk.until_event(Compacting)
    llm.release()
    assert await turn == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared, "somebody waited for it"
    assert len(summaries(llm)) == 1
    assert states(talk) == ["preparing", "ready", "used"]


async def test_esc_while_it_is_taken_over_neither_loses_it_nor_counts_as_a_failure(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await with_one(talks, llm, HELD)
    llm.always(model(FULL, FULL, 900))
    turn = asyncio.create_task(talk.ask("Go on"))
    await talk.until_event(Compacting)
    talk.conversation.interrupt()
    assert await turn == "interrupted"
    assert not talk.of(BoundaryCommitted) and talk.conversation.context.preparation == "preparing"
    llm.release()
    await until_ready(talk)
    llm.always(model(900))
    assert await talk.ask("Now") == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.prepared and len(summaries(llm)) == 1
    assert not [notice for notice in talk.of(Notice) if notice.level == "warning"]


@pytest.mark.parametrize("fault", [Fail(400), Fail(401), Reply("", calls=[Call("ls", {})]), Overflow()])
async def test_failed_preparation_leaves_the_usual_boundary(
    talks: Talks, llm: ScriptedLLM, fault: Answer
) -> None:
    talk = await with_one(talks, llm, fault)
    await talk.until(lambda: "failed" in states(talk))
    before = len(summaries(llm))
    assert talk.conversation.context.preparation == ""
    llm.always(model(NEARLY, FULL, 900))
    assert await talk.ask("Go on") == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and boundary.summary_source == "model"
    assert states(talk) == ["preparing", "failed"], "never begun twice"
    assert len(summaries(llm)) == before + 1
    assert not talk.of(Retry), "nobody waits for it, so nobody hears of its retries"


HANGS = Stall(NOTES, after=1)
SOON = {"compaction.summary_seconds": 4}


async def test_hanging_preparation_is_ended_at_its_limit(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm, HANGS, flags=SOON)
    await talk.until(lambda: "failed" in states(talk))
    await llm.wait_closed()
    assert talk.conversation.context.preparation == ""
    llm.always(model(NEARLY, FULL, 900))
    assert await talk.ask("Go on") == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and boundary.summary_source == "model"
    assert states(talk) == ["preparing", "failed"] and len(summaries(llm)) == 2


async def test_hanging_preparation_delays_a_boundary_no_longer_than_its_own_call(
    talks: Talks, llm: ScriptedLLM
) -> None:
    talk = await with_one(talks, llm, HANGS, flags={"compaction.summary_seconds": 4})
    llm.always(model(FULL, 900, summary=HANGS))
    assert await talk.ask("Go on") == "done"
    await llm.wait_closed()
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.summary_source == "evidence" and len(summaries(llm)) == 1, "nobody is asked once more"
    assert f"{MODEL} took longer than 4 s to summarise" in boundary.problem
    assert "Begin the work" in boundary.evidence
    assert states(talk)[:2] == ["preparing", "failed"]


async def test_hanging_preparation_delays_no_turn(talks: Talks, llm: ScriptedLLM) -> None:
    other = "openai/other-model"
    talk = await with_one(talks, llm, HANGS, flags={f'models."{other}".context_window': 10_000})
    llm.always(model(NEARLY, NEARLY))
    assert await talk.ask("Go on") == "done"
    assert states(talk) == ["preparing"]
    await talk.conversation.choices.select_model(other)
    await llm.wait_closed()
    assert states(talk) == ["preparing", "discarded"]


async def test_cost_of_a_hanging_preparation_is_counted(talks: Talks, llm: ScriptedLLM) -> None:
    small = "openai/small-model"
    flags = {
        **SOON,
        "compaction.model": small,
        f'models."{small}".context_window': 10_000,
        f'models."{small}".input_cost': 50.0,
    }
    useless = Reply("", calls=[Call("ls", {})], usage=Usage(2_000, 0))
    work = model(1_000, 2_000, NEARLY, NEARLY + 20)

    def answer(body: dict[str, Any]) -> Answer:
        if is_summary(body):
            return useless if body["model"] == "small-model" else HANGS
        return work(body)

    llm.always(answer)
    talk = await talks(flags={**WINDOW, **flags}, yolo=True)
    assert await talk.ask("Begin the work") == "done"
    await talk.until(lambda: "failed" in states(talk))
    (failed,) = [event for event in talk.of(PreparationChanged) if event.state == "failed"]
    assert failed.cost == pytest.approx(0.1)
    spent = talk.conversation.usage
    assert spent.input_tokens == 990 + 1_990 + NEARLY - 10 + NEARLY + 10 + 2_000
    with sqlite3.connect(Paths().database) as rows:
        assert rows.execute("SELECT input_tokens, cost FROM session").fetchall() == [
            (spent.input_tokens, pytest.approx(spent.cost))
        ]


async def test_a_failure_that_is_taken_over_leaves_the_evidence_alone(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm, Stall(Reply("", calls=[Call("ls", {})]), after=0))
    llm.always(model(FULL, 900))
    turn = asyncio.create_task(talk.ask("Go on"))
    await talk.until_event(Compacting)
    llm.release()
    assert await turn == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.summary_source == "evidence" and len(summaries(llm)) == 1


async def test_model_switch_discards_the_preparation(talks: Talks, llm: ScriptedLLM) -> None:
    other = "openai/other-model"
    talk = await with_one(talks, llm, flags={f'models."{other}".context_window': 10_000})
    await until_ready(talk)
    await talk.conversation.choices.select_model(other)
    assert talk.conversation.context.preparation == ""
    llm.always(model(NEARLY, FULL, 900))
    await talk.ask("Go on")
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and boundary.summary_model == other
    assert states(talk) == ["preparing", "ready", "discarded"]


async def test_a_model_switched_while_it_is_taken_over_does_not_end_the_turn(
    talks: Talks, llm: ScriptedLLM
) -> None:
    other = "openai/other-model"
    talk = await with_one(talks, llm, HELD, flags={f'models."{other}".context_window': 10_000})
    llm.always(model(FULL, 900))
    turn = asyncio.create_task(talk.ask("Go on"))
    await talk.until_event(Compacting)
    await talk.conversation.choices.select_model(other)
    assert await turn == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and len(summaries(llm)) == 2


async def test_an_edited_template_discards_it(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    (home / "templates").mkdir(exist_ok=True)
    (home / "templates" / "summary.md").write_text("Write a haiku.\n")
    llm.always(model(FULL, 900))
    await talk.ask("Go on")
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and boundary.template.endswith("summary.md")
    assert states(talk)[-1] == "discarded" and len(summaries(llm)) == 2


async def test_an_edit_of_what_was_summarised_discards_it(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    await talk.conversation.context.edit([ContextEdit("drop", talk.conversation.history[2].id)])
    assert states(talk)[-1] == "discarded"
    llm.always(model(FULL, 900))
    await talk.ask("Go on")
    (boundary,) = talk.of(BoundaryCommitted)
    assert not boundary.prepared and states(talk)[-1] == "discarded"


async def test_undo_discards_it_and_the_next_boundary_has_its_own(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    llm.always(model(FULL, 2_000, NEARLY, NEARLY))
    await talk.ask("Go on")
    await talk.until(lambda: states(talk)[3:] == ["preparing", "ready"])
    assert await talk.conversation.context.undo_compaction()
    assert states(talk)[5:] == ["discarded"] and talk.conversation.context.preparation == ""
    llm.always(model(7_700, 7_700))  # 85% of the fallback threshold, 0.90, are 7,650
    await talk.ask("Once more")
    await talk.until(lambda: states(talk)[6:] == ["preparing", "ready"])


async def test_preparation_is_not_used_when_newer_messages_do_not_fit(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    llm.always(model(NEARLY, FULL, 900, command="seq 1 4000"))
    assert await talk.ask("Go on") == "done"
    boundary = talk.of(BoundaryCommitted)[0]
    assert not boundary.prepared
    assert states(talk)[:3] == ["preparing", "ready", "discarded"]


async def test_a_compact_by_hand_uses_it_unless_the_user_has_words_for_it(
    talks: Talks, llm: ScriptedLLM
) -> None:
    for focus, used in (("", True), ("the parser", False)):
        llm.requests.clear()
        talk = await with_one(talks, llm)
        await until_ready(talk)
        assert await talk.conversation.context.compact(focus)
        (boundary,) = talk.of(BoundaryCommitted)
        assert (boundary.trigger, boundary.prepared) == ("manual", used)
        assert states(talk)[-1] == ("used" if used else "discarded")
        await talk.close()


async def test_the_prepared_text_is_what_is_reviewed(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm, flags={"compaction.review": "ask"}, interactive=True)
    await until_ready(talk)
    llm.always(model(FULL, 900))
    turn = asyncio.create_task(talk.ask("Go on"))
    review = await talk.until_event(ReviewNeeded)
    assert "Prepared notes." in review.summary
    assert talk.conversation.context.review(review.id, Verdict("accept", "My own words."))
    assert await turn == "done"
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.prepared and boundary.summary_source == "edited"
    assert states(talk) == ["preparing", "ready", "used"]


async def test_cost_of_a_preparation_is_counted_once(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm)
    await until_ready(talk)
    spent = talk.conversation.usage
    assert spent.input_tokens == 990 + 1_990 + NEARLY - 10 + NEARLY + 10 + 1_000
    with sqlite3.connect(Paths().database) as rows:
        assert rows.execute("SELECT input_tokens, cost FROM session").fetchall() == [
            (spent.input_tokens, pytest.approx(spent.cost))
        ]
    (ready,) = [event for event in talk.of(PreparationChanged) if event.state == "ready"]
    assert ready.cost == pytest.approx(0.1)
    llm.always(model(FULL, 900))
    await talk.ask("Go on")
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.prepared and boundary.cost == pytest.approx(0.1)
    assert talk.conversation.usage.input_tokens == spent.input_tokens + FULL - 10 + 890
    talk = await talks(resume_latest=True, flags=WINDOW)
    assert talk.conversation.usage.input_tokens == spent.input_tokens + FULL - 10 + 890


async def test_leaving_ends_the_call_in_flight(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await with_one(talks, llm, HELD)
    await asyncio.wait_for(talk.close(), 30)
    await llm.wait_closed()


async def test_a_headless_run_that_ends_begins_none(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(model(NEARLY))
    talk = await talks(flags=WINDOW, yolo=True)
    await talk.ask("a single answer")
    assert not states(talk) and not summaries(llm)


async def test_next_preparation_starts_between_turns(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(model(1_000, 1_000, FULL))
    talk = await talks(flags=WINDOW, yolo=True, interactive=True)
    await talk.ask("a single answer")
    await until_ready(talk)
    llm.always(model(900))
    await talk.ask("and now?")
    (boundary,) = talk.of(BoundaryCommitted)
    assert boundary.prepared


async def test_a_model_on_the_users_own_server_is_not_asked_twice_at_a_time(
    talks: Talks, llm: ScriptedLLM
) -> None:
    local = "llama_cpp/small"
    flags = {
        **WINDOW,
        f'models."{local}".context_window': 10_000,
        "model": local,
        "providers.llama_cpp.api_base": llm.api_base,
    }
    llm.always(model(1_000, 2_000, NEARLY, NEARLY))
    talk = await talks(flags=flags, yolo=True)
    assert await talk.ask("go") == "done"
    assert not states(talk) and not summaries(llm)
    llm.always(model(1_000, 2_000, NEARLY, NEARLY))
    talk = await talks(flags={**flags, "compaction.model": MODEL}, yolo=True)
    assert await talk.ask("go") == "done"
    await until_ready(talk)


async def test_the_calls_of_a_task_end_with_it(talks: Talks, llm: ScriptedLLM) -> None:
    steps = iter(
        (
            Reply(calls=[Call("task", {"prompt": "look round"})]),
            Reply(calls=[Call("bash", {"command": "echo 1"})], usage=Usage(1_000, 10)),
            Reply(calls=[Call("bash", {"command": "echo 2"})], usage=Usage(NEARLY, 10)),
            Reply("Report.", usage=Usage(NEARLY, 10)),
            Reply("All done."),
        )
    )
    llm.always(lambda body: HELD if is_summary(body) else next(steps))
    talk = await talks(flags=WINDOW, yolo=True)
    assert await talk.ask("go") == "done"
    assert talk.of(ToolFinished)[-1].text.startswith("Report.")
    assert not states(talk)
    if summaries(llm):
        await llm.wait_closed()
