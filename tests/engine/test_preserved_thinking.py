"""Thinking that a model binds to everything before it reaches the model again, request after request."""

import asyncio
import itertools
from pathlib import Path

import pytest
from scripted_llm.replies import Body, Call, Fail, Reply
from scripted_llm.server import ScriptedLLM
from support.binding_claude import (
    BINDING_CONTROLS,
    CLEAR_AT,
    INLINE_TOOLS,
    TOOL_CHANGES,
    BindingClaude,
    mismatches,
    steps_of_a_turn,
    thoughts,
    visible_statuses,
)
from support.digressions import digress
from support.talk import Talk, Talks

from crushpy.context.edits import ContextEdit, effect_words, thoughts_left_behind
from crushpy.core.events import BoundaryCommitted, BranchReturned, Notice, PromptCommitted
from crushpy.engine.user_choices import TOOLS_CHANGE
from crushpy.llm.anthropic.thinking_binding import binds_thinking

MODEL = "lab/claude-opus-5-5"


async def open_talk(talks: Talks, llm: ScriptedLLM, *, model: str = MODEL, **flags: object) -> Talk:
    lab = {
        "providers.lab.protocol": "anthropic",
        "providers.lab.api_base": llm.url,
        "model": model,
        f'models."{model}".context_window': 200_000,
    }
    return await talks(
        flags={**lab, **{key.replace("__", "."): value for key, value in flags.items()}}, yolo=True
    )


def sessions(requests: list[Body]) -> list[list[Body]]:
    """The requests by session: each begins with a user message of its own."""
    return [
        list(group)
        for _, group in itertools.groupby(requests, lambda body: body["messages"][0]["content"][0]["text"])
    ]


def assert_thinking_survives(claude: BindingClaude) -> None:
    """Thinking is in every request but the first of a session, and all of it fits."""
    assert claude.refusals == []
    for session in sessions(claude.answered):
        assert thoughts(session[0]) == []
        for number, body in enumerate(session[1:], start=1):
            assert mismatches(body) == []
            assert len(thoughts(body)) == number


@pytest.mark.slow
@pytest.mark.parametrize("method", ["llm", "auto"])
async def test_every_request_carries_all_thinking_of_its_session(
    method: str, talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method=method)
    for number in range(12):
        assert await talk.ask(f"step {number}") == "done"
    assert_thinking_survives(claude)
    assert len(claude.answered) == 24
    expected = 1 if method == "llm" else 0
    assert [len(visible_statuses(body)) for body in claude.answered] == [expected] * 24


@pytest.mark.slow
@pytest.mark.parametrize("method", ["llm", "auto"])
async def test_thinking_is_lost_once_at_a_boundary(method: str, talks: Talks, llm: ScriptedLLM) -> None:
    def reply(claude: BindingClaude, body: Body) -> Reply:
        if method == "llm" and len(claude.answered) % 10 == 0:
            return Reply("Enough.", calls=[Call("new_session", {"summary": "Goal: go on with the steps."})])
        return steps_of_a_turn(claude, body)

    claude = BindingClaude(llm, reply)
    talk = await open_talk(talks, llm, compaction__method=method)
    for number in range(14):
        assert await talk.ask(f"step {number}") == "done"
        if method == "auto" and number % 5 == 4:
            await talk.conversation.context.compact()
    assert len(talk.of(BoundaryCommitted)) >= 2
    assert_thinking_survives(claude)


async def test_tasks_keep_their_thinking(talks: Talks, llm: ScriptedLLM) -> None:
    def reply(claude: BindingClaude, body: Body) -> Reply:
        if len(claude.answered) == 1:
            return Reply(calls=[Call("task", {"prompt": "look round"})])
        return steps_of_a_turn(claude, body)

    claude = BindingClaude(llm, reply)
    talk = await open_talk(talks, llm, compaction__method="llm")
    assert await talk.ask("please delegate") == "done"
    assert claude.refusals == []
    assert [len(thoughts(body)) for body in claude.answered] == [0, 0, 1, 1]


async def test_undo_says_which_thoughts_are_left_behind_and_the_parents_are_valid_again(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method="auto")
    await talk.ask("one")
    await talk.conversation.context.compact(summary="Goal: go on.")
    assert thoughts_left_behind(talk.conversation.history) == "The model keeps its thinking."
    await talk.ask("two")
    assert thoughts_left_behind(talk.conversation.history) == "The model loses its 2 thoughts since then."
    await talk.conversation.context.undo_compaction()
    await talk.ask("three")
    assert claude.refusals == [] and len(thoughts(claude.answered[-1])) == 3


@pytest.mark.slow
async def test_statuses_are_sent_again_unchanged_after_a_restart(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    first = await open_talk(talks, llm, compaction__method="llm")
    await first.ask("one")
    session = first.conversation.info.id
    await first.close()
    lab = {"providers.lab.protocol": "anthropic", "providers.lab.api_base": llm.url, "model": MODEL}
    again = await talks(flags={**lab, "compaction.method": "llm"}, yolo=True, session=session)
    await again.ask("two")
    assert_thinking_survives(claude)
    assert len(claude.answered) == 4


@pytest.mark.slow
async def test_switching_the_method_adds_and_removes_the_tool_without_losing_thinking(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method="auto")
    for method in ("auto", "llm", "llm", "auto", "llm"):
        assert await talk.conversation.choices.select_compaction(method) == ""
        await talk.ask(f"now {method}")
    assert_thinking_survives(claude)
    assert {str(body["tools"]) for body in claude.answered} == {str(claude.answered[0]["tools"])}
    betas = llm.requests[-1].headers["anthropic-beta"].split(",")
    assert {CLEAR_AT, TOOL_CHANGES, INLINE_TOOLS} <= set(betas)
    assert len(visible_statuses(claude.answered[-1])) == 1


@pytest.mark.slow
async def test_an_edit_says_which_thoughts_it_costs_and_they_are_left_out(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method="llm")
    for number in range(3):
        await talk.ask(f"step {number}")
    second = next(event for event in talk.of(PromptCommitted) if event.text == "step 1")
    effect = await talk.conversation.context.edit([ContextEdit("drop", second.message_id)])
    assert effect.thoughts_lost == 4
    assert "the model loses its 4 thoughts after it" in effect_words(effect)
    await talk.ask("step 3")
    assert claude.refusals == []
    assert [len(thoughts(body)) for body in claude.answered[-2:]] == [2, 3]
    inspection = talk.conversation.context.inspect()
    assert inspection.dropped_thoughts == 4
    assert inspection.rows[-1].thoughts_lost == 1


@pytest.mark.slow
async def test_a_server_without_such_messages_gets_the_status_as_before(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    claude.refused_betas = (CLEAR_AT,)
    talk = await open_talk(talks, llm, compaction__method="llm")
    for number in range(3):
        assert await talk.ask(f"step {number}") == "done"
    assert len(claude.refusals) == 1, "learnt from one refusal"
    assert all("context_status" in str(body["messages"][-1]) for body in claude.answered)
    assert BINDING_CONTROLS in llm.requests[-1].headers["anthropic-beta"]
    assert thoughts(claude.answered[-1]), "the server drops what does not fit"


@pytest.mark.slow
async def test_a_server_that_no_longer_accepts_such_messages_gets_none(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method="llm")
    for number in range(4):
        claude.refused_betas = (CLEAR_AT,) if number > 1 else ()
        assert await talk.ask(f"step {number}") == "done"
    assert len(claude.refusals) == 1
    assert "clear_at" not in str(claude.answered[-1]["messages"])


async def test_older_models_keep_the_status_inside_the_last_message(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(lambda body: steps_of_a_turn(None, body))  # pyright: ignore[reportArgumentType]
    talk = await open_talk(talks, llm, model="lab/claude-opus-5", compaction__method="llm")
    assert await talk.conversation.choices.select_compaction("llm") == ""
    await talk.ask("one")
    assert await talk.conversation.choices.select_compaction("auto") == TOOLS_CHANGE
    assert all(message["role"] != "system" for sent in llm.requests for message in sent.messages)
    assert "context_status" in str(llm.requests[-1].messages[-1])


async def test_thinking_refused_although_it_fits_is_dropped_with_a_notice_and_not_sent_again(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method="llm")
    await talk.ask("one")
    llm.script(lambda body: Fail(400, message="messages.1: Invalid `signature` in `thinking` block"))
    await talk.ask("two")
    await talk.ask("three")
    assert claude.refusals == []
    assert [notice for notice in talk.of(Notice) if "earlier thinking" in notice.text]
    assert mismatches(claude.answered[-1]) == []
    assert thoughts(claude.answered[-1])


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        *(
            (f"anthropic/claude-{name}", True)
            for name in ("fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2")
        ),
        *((f"anthropic/claude-{name}-5-5", True) for name in ("opus", "sonnet", "haiku")),
        *(("claude-opus-5-5-20260901", True), ("eu.anthropic.claude-sonnet-5-5-v1:0", True)),
        *(
            ("claude-opus-6", True),
            ("claude-fable-5-3", True),
            ("claude-saga-1", True),
            ("claude-next", True),
        ),
        *(("claude-opus-5", False), ("claude-opus-5-20260101", False), ("claude-sonnet-4-5-20250929", False)),
        *(("claude-fable-5", False), ("claude-3-7-sonnet-latest", False), ("claude-2.1", False)),
        *(("claude-instant-1.2", False), ("gpt-5", False), ("test-model", False)),
        *(("claude-v2", False), ("anthropic.claude-v2:1", False), ("claude-instant", False)),
        *(("claude-instant-v1", False), ("claude-v6", True)),
    ],
)
def test_binding_of_thinking_is_known_by_model(model: str, binds: bool) -> None:
    assert binds_thinking(model) is binds


@pytest.mark.slow
async def test_a_branch_keeps_all_thinking_and_drops_its_own_when_it_returns(
    talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, digress)
    talk = await open_talk(talks, llm, compaction__method="llm")
    assert await talk.ask("Hello.") == "done"
    assert await talk.ask("Digress.") == "done"
    assert claude.refusals == [] and all(mismatches(body) == [] for body in claude.answered)
    assert [len(thoughts(body)) for body in claude.answered] == [0, 1, 2, 3, 4, 3, 2]
    assert [len(visible_statuses(body)) for body in claude.answered] == [1] * 7
    assert [event.report.thoughts for event in talk.of(BranchReturned)] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["llm", "auto"])
async def test_the_tools_of_llm_come_and_go_together_inside_a_branch(
    first: str, talks: Talks, llm: ScriptedLLM
) -> None:
    claude = BindingClaude(llm, steps_of_a_turn)
    talk = await open_talk(talks, llm, compaction__method=first)
    await talk.ask("one")
    for number, method in enumerate(["auto", "llm", "auto", "llm"]):
        await talk.conversation.choices.select_compaction(method)
        if number == 1:
            await talk.conversation.context.open_branch(f"look {number}")
            talk.conversation.submit(f"look {number}")
        else:
            await talk.ask("more")
        while talk.conversation.busy:
            await asyncio.sleep(0)
        if number == 2:
            assert await talk.conversation.context.return_to_parent("seen")
    assert claude.refusals == [] and all(mismatches(body) == [] for body in claude.answered)
    changes = [
        block["tool"].get("name") or block["tool"]["definition"]["name"]
        for message in claude.answered[-1]["messages"]
        if message["role"] == "system" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_addition"
    ]
    assert changes[-3:] == ["branch", "return_to_parent", "new_session"]
