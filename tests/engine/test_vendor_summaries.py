"""A summary that the vendor writes from the model's own context, and sends back signed."""

import asyncio
import json

import pytest
from scripted_llm.replies import Body
from scripted_llm.server import ScriptedLLM
from support.binding_claude import BindingClaude, steps_of_a_turn, thoughts, unmarked
from support.talk import Talk, Talks

from crushpy.core.events import BoundaryCommitted, ReviewNeeded
from crushpy.engine.compaction.draft import Verdict

pytestmark = pytest.mark.slow

MODEL = "lab/claude-opus-5-5"


async def open_talk(talks: Talks, llm: ScriptedLLM, **flags: object) -> Talk:
    lab: dict[str, object] = {
        "providers.lab.protocol": "anthropic",
        "providers.lab.api_base": llm.url,
        "model": MODEL,
        f'models."{MODEL}".context_window': 200_000,
        "compaction.summarizer": "vendor",
    }
    return await talks(flags={**lab, **flags}, yolo=True)


def kinds(body: Body) -> list[str]:
    return [block["type"] for block in body["messages"][0]["content"]]


async def test_the_vendor_summarises_from_its_cache_and_the_tails_thinking_stays_valid(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm)
    for number in range(6):
        assert await talk.ask(f"step {number}: keep the port 7071") == "done"
    before = claude.answered[-1]
    await talk.conversation.context.compact()
    [asked] = claude.compactions
    assert asked["compaction"]["type"] == "summarize"
    assert "window was emptied" in asked["compaction"]["instructions"]
    assert (asked["system"], asked["tools"]) == (before["system"], before["tools"])
    assert unmarked(asked["messages"]) == unmarked(before["messages"][: len(asked["messages"])])
    [boundary] = talk.of(BoundaryCommitted)
    assert boundary.summary == claude.summary and boundary.summary_source == "model"
    assert boundary.summary_model == MODEL and boundary.problem == ""
    for number in range(6, 9):
        assert await talk.ask(f"step {number}") == "done"
    assert claude.refusals == []
    child = claude.answered[12:]
    assert [kinds(body) for body in child] == [["compaction"]] * len(child)
    assert len(thoughts(child[0])) > 0, "the tail lost its thinking"
    first = json.dumps(child[0]["messages"])
    assert first.count(claude.summary) == 1 and "<evidence>" in first and "step 0: keep the port" in first


async def test_a_second_summary_replaces_the_first(talks: Talks, llm: ScriptedLLM) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm)
    for number in range(12):
        assert await talk.ask(f"step {number}") == "done"
        if number % 4 == 3:
            await talk.conversation.context.compact()
    assert claude.refusals == [] and len(claude.compactions) == 3
    assert kinds(claude.compactions[1]) == ["compaction"]


async def test_an_edited_summary_is_sent_as_text(talks: Talks, llm: ScriptedLLM) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm)
    for number in range(4):
        await talk.ask(f"step {number}")
    compacting = asyncio.create_task(talk.conversation.context.compact(review=True))
    review = await talk.until_event(ReviewNeeded)
    talk.conversation.context.review(review.id, Verdict("accept", "Goal: the user's own words."))
    await compacting
    await talk.ask("go on")
    assert claude.refusals == [] and kinds(claude.answered[-1])[0] == "text"
    assert "the user's own words" in json.dumps(claude.answered[-1]["messages"][0])


async def test_a_server_without_it_is_asked_once_and_the_model_summarises(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    claude.refused_keys = ("compaction",)
    talk = await open_talk(talks, llm)
    for number in range(8):
        assert await talk.ask(f"step {number}") == "done"
        if number % 4 == 3:
            await talk.conversation.context.compact()
    first, second = talk.of(BoundaryCommitted)
    assert first.summary == second.summary == claude.summary
    assert "by the vendor" in first.problem and second.problem == ""
    assert len(claude.refusals) == 1


@pytest.mark.parametrize("summary", ["", "word " * 40_000])
async def test_a_useless_summary_is_not_used(summary: str, talks: Talks, llm: ScriptedLLM) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    claude.summary = summary
    talk = await open_talk(talks, llm)
    for number in range(4):
        await talk.ask(f"step {number}")
    await talk.conversation.context.compact()
    [boundary] = talk.of(BoundaryCommitted)
    assert "by the vendor" in boundary.problem and boundary.summary.startswith("Goal: go on")
    await talk.ask("go on")
    assert kinds(claude.answered[-1])[0] == "text"


async def test_vendor_summary_is_sent_as_text_to_another_model(talks: Talks, llm: ScriptedLLM) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm)
    for number in range(4):
        await talk.ask(f"step {number}")
    await talk.conversation.context.compact()
    await talk.conversation.choices.select_model("lab/claude-sonnet-5-5")
    await talk.ask("go on")
    assert claude.refusals == [] and kinds(claude.answered[-1])[0] == "text"
    assert claude.summary in json.dumps(claude.answered[-1]["messages"][0])


@pytest.mark.nightly
async def test_vendor_summaries_work_over_many_prepared_boundaries(talks: Talks, llm: ScriptedLLM) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    claude.summary = "Goal: go on. " + "Another step is done. " * 20 + "Next: more."
    talk = await open_talk(talks, llm, **{f'models."{MODEL}".context_window': 32_000})
    for number in range(20):
        assert await talk.ask(f"step {number}: " + "read the log of the server once more " * 240) == "done"
    boundaries = talk.of(BoundaryCommitted)
    assert len(boundaries) >= 2 and {boundary.trigger for boundary in boundaries} == {"auto"}
    assert {boundary.problem for boundary in boundaries} == {""} and len(claude.compactions) >= len(
        boundaries
    )
    assert claude.refusals == []
    assert [body for body in claude.answered[1:] if not thoughts(body)] == []
