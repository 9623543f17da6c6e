"""Budgets through the real engine: what counts, who shares them, and how a turn pauses."""

import asyncio
import json
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

import crushpy
from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalNeeded, BoundaryCommitted, Notice, ToolFinished
from crushpy.core.messages import Usage
from crushpy.engine.approvals import Answer
from crushpy.engine.spending import Amount, parse_amount
from crushpy.sdk.scripted_model import ScriptedModel

PRICED: dict[str, object] = {
    f"models.{MODEL}.input_cost": 1_000_000.0,
    f"models.{MODEL}.output_cost": 1_000_000.0,
}
"""A dollar per token."""


def looks(tokens: int) -> Reply:
    return Reply(calls=[Call("bash", {"command": "date +%N"})], usage=Usage(tokens))


def says(text: str, tokens: int) -> Reply:
    return Reply(text, usage=Usage(tokens))


def warnings(talk: Talk) -> list[str]:
    """Those about money."""
    words = ("budget", "price")
    return [event.text for event in talk.of(Notice) if any(word in event.text for word in words)]


async def answer(talk: Talk, kind: str, count: int = 1) -> ApprovalNeeded:
    question = await talk.until_event(ApprovalNeeded, count)
    talk.conversation.answer(question.id, Answer("once" if kind == "yes" else "deny"))
    return question


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("5usd", Amount(5.0, True)),
        ("0.50usd", Amount(0.5, True)),
        ("200k", Amount(200_000, False)),
        ("1.5m", Amount(1_500_000, False)),
        ("4000", Amount(4_000, False)),
        ("0", None),
        ("", None),
    ],
)
def test_amount_is_dollars_or_tokens(text: str, amount: Amount | None) -> None:
    assert parse_amount(text) == amount


@pytest.mark.parametrize("text", ["5 usd", "$5", "usd", "-5usd", "5eur", "1e9", "many"])
def test_amount_in_another_form_is_an_error_that_names_both(text: str) -> None:
    with pytest.raises(UsageError, match=r"5usd.*200k"):
        parse_amount(text)


async def test_turn_without_a_user_ends_as_a_limit_before_the_request_that_is_too_much(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(looks(60), looks(60), says("never sent", 1))
    talk = await talks(budget="100")
    assert await talk.ask("Watch the clock") == "limit"
    assert len(llm.requests) == 2
    assert warnings(talk) == [
        "Stopped: The budget of this conversation is used up: 120 tokens of 100 tokens."
    ]
    later = await talks(session=talk.conversation.info.id)
    assert await later.ask("Go on") == "limit"
    assert len(llm.requests) == 2


async def test_user_is_asked_at_the_end_of_a_budget_and_may_allow_as_much_again(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(looks(60), looks(60), looks(60), looks(60), says("never sent", 1))
    talk = await talks(interactive=True, yolo=True, flags=PRICED)
    assert "5usd" in await talk.conversation.spending.choose("")
    assert await talk.conversation.spending.choose("100usd") == "Left of the budget: 100.00usd."
    work = asyncio.create_task(talk.ask("Watch the clock"))
    question = await answer(talk, "yes")
    assert [choice.label for choice in question.choices] == ["go on with 100.00usd", "stop"]
    assert "120.00usd of 100.00usd" in question.reason
    await answer(talk, "no", 2)
    assert await work == "limit"
    assert len(llm.requests) == 4
    assert talk.conversation.spending.left == "0.00usd"


async def test_budget_is_announced_at_80_percent_once(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(looks(85), looks(5), says("Done.", 1))
    talk = await talks(budget="100")
    assert await talk.ask("Watch the clock") == "done"
    assert warnings(talk) == ["80% of the budget of this conversation is used: 85 tokens of 100 tokens."]
    assert talk.conversation.spending.left == "9 tokens"


async def test_sub_agents_share_the_budget_and_a_refusal_stops_all_of_them(
    talks: Talks, llm: ScriptedLLM
) -> None:
    both = [Call("task", {"prompt": f"look at {name}", "read_only": True}) for name in "ab"]
    llm.script(Reply(calls=both, usage=Usage(10)))
    llm.script(*(Reply(calls=[Call("ls", {"path": "."})], usage=Usage(60)) for _ in both))
    talk = await talks(budget="100", interactive=True)
    work = asyncio.create_task(talk.ask("Look around"))
    await answer(talk, "no")
    assert await work == "limit"
    assert len(llm.requests) == 3 and len(talk.of(ApprovalNeeded)) == 1
    reports = [event.text for event in talk.of(ToolFinished) if event.name == "task"]
    assert len(reports) == 2 and all("stopped at a limit" in report for report in reports)


async def test_side_questions_and_titles_count(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(says("Hello.", 10), says("A title", 20))
    talk = await talks(budget="100", interactive=True)
    assert await talk.ask("Hello") == "done"
    await talk.until(lambda: talk.conversation.usage.total == 30)
    llm.script(says("Because.", 80))
    assert await talk.conversation.context.ask_aside("Why?") == "Because."
    assert await talk.conversation.context.ask_aside("And why that?") == ""
    assert "used up: 110 tokens of 100 tokens" in warnings(talk)[-1]
    assert not talk.of(ApprovalNeeded) and len(llm.requests) == 3


async def test_conversations_of_a_project_share_the_budget_of_a_day(talks: Talks, llm: ScriptedLLM) -> None:
    daily: dict[str, object] = {"budget.project_day": "100"}
    llm.script(says("Done.", 60), says("Done.", 60))
    first, second = await talks(flags=daily), await talks(flags=daily)
    assert await first.ask("One") == "done"
    assert await second.ask("Two") == "done"
    assert await first.ask("Three") == "limit"
    assert "budget of this project for today is used up: 120 tokens" in warnings(first)[-1]
    third = await talks(flags=daily)
    assert third.conversation.spending.left == "0 tokens"


async def test_model_without_a_price_is_told_about_when_the_budget_is_in_dollars(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(says("Done.", 60), says("Done.", 60))
    talk = await talks(budget="1usd")
    assert await talk.ask("One") == await talk.ask("Two") == "done"
    assert len(warnings(talk)) == 1 and f"{MODEL} has no known price" in warnings(talk)[0]


@pytest.mark.parametrize(("budget", "left"), [("1k", "940 tokens"), ("", None), ("0", None)])
async def test_status_says_what_is_left_if_and_only_if_a_budget_is_set(
    talks: Talks, llm: ScriptedLLM, budget: str, left: str | None
) -> None:
    llm.script(looks(60), says("Done.", 60))
    talk = await talks(budget=budget, flags={"compaction.method": "llm"})
    assert await talk.ask("Watch the clock") == "done"
    last = llm.requests[1].messages[-1]["content"]
    status = json.loads(last.removeprefix("<context_status>").removesuffix("</context_status>"))
    assert status.get("budget_left") == left


async def test_budget_of_a_conversation_is_carried_over_a_compaction(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(says("Hello.", 60), says("A summary.", 10), says("never sent", 1))
    talk = await talks(budget="70")
    assert await talk.ask("Hello " * 2_000) == "done"
    assert await talk.conversation.context.compact()
    assert await talk.ask("Go on") == "limit"
    assert not await talk.conversation.context.compact("once more")
    assert len(llm.requests) == 2


async def test_user_is_asked_before_a_compaction_that_the_budget_does_not_cover(
    talks: Talks, llm: ScriptedLLM
) -> None:
    window: dict[str, object] = {f"models.{MODEL}.context_window": 10_000, "compaction.prepare": False}
    llm.script(says("Hello " * 3_000, 9_000), says("A summary.", 100), says("Done.", 50))
    talk = await talks(budget="9000", interactive=True, flags=window)
    assert await talk.ask("Hello " * 500) == "done"
    work = asyncio.create_task(talk.ask("Go on"))
    await answer(talk, "yes")
    assert await work == "done"
    assert len(talk.of(BoundaryCommitted)) == 1 and len(llm.requests) == 3


def test_sdk_raises_an_error_of_its_own_kind(workspace: Path) -> None:
    model = ScriptedModel(["Hello.", "never sent"])
    with crushpy.Agent(workspace, model=model, settings={"budget.conversation": "1"}) as agent:
        assert agent.ask("Hello").status == "done"
        with pytest.raises(crushpy.Error) as raised:
            agent.ask("Hello again")
    assert getattr(raised.value, "kind", "") == "budget" and raised.value.exit_code == 4
