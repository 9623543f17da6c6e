"""Prompts that reach a running turn between two of its steps: after all results, and never a sub-agent."""

import asyncio
import os
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks, talks

from crushpy.core.events import (
    ModeChanged,
    PromptCommitted,
    PromptQueued,
    TaskProgress,
    ToolStarted,
    TurnEnded,
)

pytestmark = pytest.mark.slow

__all__ = ["talks"]


@pytest.fixture
def gate(workspace: Path) -> Path:
    """A command that reads it waits until something is written to it."""
    os.mkfifo(workspace / "gate")
    return workspace / "gate"


def waits() -> Reply:
    return Reply(
        calls=[
            Call("bash", {"command": "cat gate"}, "call_1"),
            Call("bash", {"command": "echo second"}, "call_2"),
        ]
    )


def last_sent(llm: ScriptedLLM) -> list[tuple[str, str]]:
    return [(message["role"], str(message["content"])) for message in llm.requests[-1].body["messages"][1:]]


@pytest.fixture(autouse=True)
def after_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_QUEUE", "turn")


async def running(talks: Talks, llm: ScriptedLLM) -> Talk:
    talk = await talks(yolo=True)
    talk.conversation.submit("first")
    await talk.until_event(ToolStarted)
    return talk


async def test_steering_prompt_is_sent_after_all_results_of_the_batch(
    talks: Talks, llm: ScriptedLLM, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRUSHPY_QUEUE")  # the default
    llm.script(waits(), "Done so.")
    talk = await running(talks, llm)
    talk.conversation.submit("and mind the gap")
    assert talk.of(PromptQueued)[0].next_step
    await asyncio.to_thread(gate.write_text, "open")
    await talk.until_event(TurnEnded)
    assert [role for role, _ in last_sent(llm)] == ["user", "assistant", "tool", "tool", "user"]
    assert last_sent(llm)[-1] == ("user", "and mind the gap")
    prompts = talk.of(PromptCommitted)
    assert [(prompt.text, prompt.steers) for prompt in prompts] == [
        ("first", False),
        ("and mind the gap", True),
    ]
    assert len(talk.of(TurnEnded)) == 1 and not talk.conversation.prompts.queue
    stored = [message.text for message in talk.conversation.history if message.role == "user"]
    assert stored == ["first", "and mind the gap"]


async def test_a_queued_prompt_is_hastened_or_waits_for_the_end_as_the_user_says(
    talks: Talks, llm: ScriptedLLM, gate: Path
) -> None:
    llm.script(waits(), "One.", "Two.")
    talk = await running(talks, llm)
    for text in ("later", "now", "no, later"):
        talk.conversation.submit(text)
    ids = [event.id for event in talk.of(PromptQueued)]
    assert talk.conversation.prompts.send_next(ids[1]) is True
    assert talk.conversation.prompts.send_next(ids[2]) is True
    assert talk.conversation.prompts.send_next(ids[2]) is False
    removed = talk.conversation.prompts.unqueue(ids[2])
    assert removed is not None and removed.text == "no, later"
    assert talk.conversation.prompts.send_next(ids[2]) is None
    await asyncio.to_thread(gate.write_text, "open")
    await talk.until_event(TurnEnded, 2)
    assert [(prompt.text, prompt.steers) for prompt in talk.of(PromptCommitted)] == [
        ("first", False),
        ("now", True),
        ("later", False),
    ]


async def test_steering_prompt_can_be_taken_back_until_it_is_sent(
    talks: Talks, llm: ScriptedLLM, gate: Path
) -> None:
    llm.script(waits(), "Done so.")
    talk = await running(talks, llm)
    talk.conversation.submit("never")
    (queued,) = talk.of(PromptQueued)
    talk.conversation.prompts.send_next(queued.id)
    removed = talk.conversation.prompts.unqueue(queued.id)
    assert removed is not None and removed.text == "never"
    await asyncio.to_thread(gate.write_text, "open")
    await talk.until_event(TurnEnded)
    assert "never" not in str(last_sent(llm)) and talk.conversation.prompts.unqueue(queued.id) is None


async def test_a_turn_that_ends_before_its_next_step_sends_it_as_the_next_prompt(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("No calls here."), after=0), "Heard.", "Heard too.")
    talk = await talks()
    talk.conversation.submit("first")
    await talk.until_event(PromptCommitted)
    talk.conversation.submit("later")
    talk.conversation.submit("soon")
    talk.conversation.prompts.send_next(talk.of(PromptQueued)[1].id)
    llm.release()
    await talk.until_event(TurnEnded, 3)
    assert [(prompt.text, prompt.steers) for prompt in talk.of(PromptCommitted)] == [
        ("first", False),
        ("soon", False),
        ("later", False),
    ]


async def test_a_sub_agent_never_gets_it(talks: Talks, llm: ScriptedLLM, gate: Path) -> None:
    errand = Reply(calls=[Call("task", {"prompt": "an errand"}, "call_task")])
    llm.script(errand, waits(), "The errand is done.", "All done.")
    talk = await talks(yolo=True)
    talk.conversation.submit("first")
    await talk.until_event(TaskProgress)
    talk.conversation.submit("for the main agent")
    talk.conversation.prompts.send_next(talk.of(PromptQueued)[0].id)
    await asyncio.to_thread(gate.write_text, "open")
    await talk.until_event(TurnEnded)
    inside, outside = [request.body["messages"] for request in llm.requests[2:4]]
    assert "for the main agent" not in str(inside)
    assert outside[-1]["content"] == "for the main agent" and outside[-2]["role"] == "tool"


async def test_steering_prompt_waits_in_the_queue_after_an_interrupt(
    talks: Talks, llm: ScriptedLLM, gate: Path
) -> None:
    llm.script(waits(), "Done so.")
    talk = await running(talks, llm)
    talk.conversation.submit("soon")
    talk.conversation.prompts.send_next(talk.of(PromptQueued)[0].id)
    talk.conversation.interrupt()
    await talk.until_event(TurnEnded)
    assert [prompt.text for prompt in talk.conversation.prompts.queue] == ["soon"]
    assert talk.conversation.prompts.send_queued()
    await talk.until_event(TurnEnded, 2)
    assert last_sent(llm)[-1] == ("user", "soon")


async def test_queued_prompt_keeps_its_mode_and_its_model(
    talks: Talks, llm: ScriptedLLM, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRUSHPY_QUEUE")  # the default: with the next step
    llm.script(waits(), "One.", "A plan.", "Two.", "Three.")
    talk = await running(talks, llm)
    talk.conversation.submit("plan it", mode="plan")
    talk.conversation.submit("think", model="openai/big-model")
    talk.conversation.submit("as usual", after_turn=True)
    planned, thought, usual = talk.of(PromptQueued)
    assert not (planned.next_step or thought.next_step or usual.next_step)
    assert talk.conversation.prompts.send_next(planned.id) is False  # the running turn has another mode
    await asyncio.to_thread(gate.write_text, "open")
    await talk.until_event(TurnEnded, 4)
    models = [request.body["model"] for request in llm.requests]
    assert models == ["test-model", "test-model", "test-model", "big-model", "test-model"]
    told = [
        event.text if isinstance(event, PromptCommitted) else getattr(event, "mode", "end")
        for event in talk.of(PromptCommitted, ModeChanged, TurnEnded)
    ]
    assert told == ["first", "end", "plan", "plan it", "end", "ask", "think", "end", "as usual", "end"]
