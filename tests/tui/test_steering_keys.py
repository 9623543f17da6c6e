"""Steering in the app: a key on a queued prompt sends it with the next step."""

import asyncio
import os
from pathlib import Path

import pytest
from asking import bash
from driving import Start, start
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.pictures import picture
from textual import events

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def test_a_key_on_a_queued_prompt_sends_it_with_the_next_step(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash("cat gate"), "Heard you.")
    async with start(yolo=True) as app:
        await app.say("begin")
        await app.sees("Running cat gate")
        await app.say("/queue mind the gap")
        await app.sees("1 queued · sent when the turn ends")
        await app.press("tab", "tab", "s")
        await app.sees("s sends with the next step", "» mind the gap")
        await app.press("escape")
        await app.sees("1 queued · sent with the next step")
        await asyncio.to_thread((workspace / "gate").write_text, "open")
        await app.sees("Heard you.", "▌ mind the gap")
        await app.rests()
        assert len(llm.requests) == 2
        assert llm.requests[1].body["messages"][-1]["content"] == "mind the gap"


async def test_enter_during_a_turn_sends_with_the_next_step_and_ctrl_enter_after_it(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash("cat gate"), "Heard you.", "And that.")
    async with start(yolo=True) as app:
        await app.say("begin")
        await app.sees("Running cat gate")
        await app.type("afterwards")
        await app.press("ctrl+enter")
        await app.sees("1 queued · sent when the turn ends")
        await app.say("mind the gap")
        await app.sees("» mind the gap")
        await asyncio.to_thread((workspace / "gate").write_text, "open")
        await app.sees("And that.")
        await app.rests()
    sent = [request.body["messages"][-1]["content"] for request in llm.requests]
    assert sent[1:] == ["mind the gap", "afterwards"]


async def test_a_second_enter_stops_a_reply_that_talks_and_sends_now(start: Start, llm: ScriptedLLM) -> None:
    talk = Reply("I could talk for hours. About this. About that.", chunk=24)
    llm.script(Stall(talk, after=1), "Heard you.")
    async with start() as app:
        await app.say("begin")
        await app.sees("I could talk for hours.")
        await app.say("mind the gap")
        await app.sees("1 queued · Enter again: stop the reply and send now")
        assert len(llm.requests) == 1
        await app.press("enter")
        await app.sees("Heard you.", "▌ mind the gap", "Interrupted.")
        assert "· 0 tokens" not in app.text, "those of the partial reply are counted"
        await app.rests()
        assert not app.conversation.prompts.queue
    said = [message["content"] for message in llm.requests[1].body["messages"] if message["role"] != "system"]
    assert said[0] == "begin" and said[1].startswith("I could talk for hours.") and said[-1] == "mind the gap"
    assert "About that" not in said[1]


async def test_a_second_enter_waits_for_a_command_that_runs(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash("cat gate"), "Heard you.")
    async with start(yolo=True) as app:
        await app.say("begin")
        await app.sees("Running cat gate")
        await app.say("mind the gap")
        await app.sees("1 queued · sent with the next step")
        await app.press("enter")
        await asyncio.to_thread((workspace / "gate").write_text, "open")
        await app.sees("Heard you.")
        await app.rests()
    assert "open" in str(llm.requests[1].body["messages"][-2]["content"])


async def test_escape_before_the_first_token_returns_the_prompt_and_it_is_not_sent_twice(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start() as app:
        for text, before in (("explain this", []), ("and that", ["explain this now", "Explained."])):
            llm.script(Stall(Reply("Never."), after=0), "Explained.")
            await app.say(text)
            await llm.wait_requests(1 + 2 * bool(before))
            await app.press("escape")
            await app.until(lambda text=text: app.chat.prompt.draft == text, "the prompt in the input")
            await app.rests()
            await app.type(" now")
            await app.press("enter")
            await llm.wait_requests(2 + 2 * bool(before))
            await app.rests()
            sent = [
                message["content"]
                for message in llm.requests[-1].body["messages"]
                if message["role"] != "system"
            ]
            assert sent == [*before, f"{text} now"]
    async with start(resume_latest=True) as app:
        llm.script("Fine.")
        await app.say("go on")
        await llm.wait_requests(5)
        sent = [
            message["content"] for message in llm.requests[-1].body["messages"] if message["role"] != "system"
        ]
        assert sent == ["explain this now", "Explained.", "and that now", "Explained.", "go on"]


async def test_escape_returns_unsent_prompts_in_order_before_the_draft(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("Half an answer and more", chunk=4), after=3))
    async with start() as app:
        await app.say("first")
        await app.sees("Half")
        for text in ("second", "/queue third"):
            await app.say(text)
        await app.sees("2 queued")
        await app.type("a draft")
        await app.press("escape")
        await app.sees("Interrupted.")
        await app.until(lambda: app.chat.prompt.draft == "second\n\nthird\n\na draft")
        assert not app.conversation.prompts.queue


async def test_escape_before_the_first_token_returns_a_paste_folded_and_the_pictures(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "shot.png").write_bytes(picture(64, 48))
    lines = "\n".join(f"line {number}" for number in range(5_000))
    llm.script(Stall(Reply("Never."), after=0), "A log.")
    async with start() as app:
        app.chat.attaching.dropped(str(workspace / "shot.png"))
        await app.sees("64x48")
        await app.type("explain ")
        app.chat.prompt.post_message(events.Paste(lines))
        await app.sees("explain [pasted 5,000 lines #1]")
        await app.press("enter")
        await llm.wait_requests(1)
        await app.press("escape")
        await app.until(lambda: app.chat.prompt.text == "explain [pasted 5,000 lines #1]", "the prompt")
        await app.sees("64x48")
        assert app.chat.prompt.draft == f"explain {lines}"
