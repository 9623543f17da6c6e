"""Modes in the app: Shift+Tab, the status line, and the card with what becomes of a plan."""

from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]

WRITE = Call("write", {"file_path": "made.txt", "content": "made\n"})


async def test_shift_tab_goes_round_the_modes_and_the_chip_at_the_prompt_says_which(start: Start) -> None:
    async with start() as app:
        for word in ("edits", "plan", "ask", "edits"):
            await app.press("shift+tab")
            await app.until(lambda word=word: app.mode_shown == word, word)
            *_, prompt, status = app.text.splitlines()
            assert prompt.startswith(f"  {word} "), "on the row of the input"
            assert "compaction" in status, "with nothing between it and the status line"


async def test_a_click_on_the_chip_switches_the_mode(start: Start) -> None:
    async with start() as app:
        await app.pilot.click(app.chat.chip)
        await app.until(lambda: app.mode_shown == "edits", "the next mode")


async def test_a_plan_is_accepted_with_edits_allowed(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script("1. Make made.txt.", Reply(calls=[WRITE]), "Made.")
    async with start(mode="plan") as app:
        await app.say("plan it")
        await app.sees("The plan is ready", "Esc stays in plan mode")
        await app.press("2")
        await app.sees("Made.")
        assert app.mode_shown == "edits"
        assert "The plan is ready" not in app.text
    assert (workspace / "made.txt").read_text() == "made\n"


async def test_a_plan_is_accepted_and_each_change_asked_for(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("1. Make made.txt.", Reply(calls=[WRITE]), "Made.")
    async with start(mode="plan") as app:
        await app.say("plan it")
        await app.sees("The plan is ready", "Esc stays in plan mode")
        await app.press("enter")
        await app.until(lambda: app.approval, "a question")
        assert app.conversation.approvals.mode == "ask"


async def test_typed_text_sends_the_plan_back(start: Start, llm: ScriptedLLM) -> None:
    llm.script("1. Make made.txt.", "1. Make other.txt.")
    async with start(mode="plan") as app:
        await app.say("plan it")
        await app.sees("The plan is ready", "Esc stays in plan mode")
        await app.type("call it other")
        await app.until(lambda: app.chat.prompt.draft == "call it other")
        assert "The plan is ready" in app.text
        await app.press("enter")
        await app.sees("Make other.txt", "The plan is ready")
        assert app.conversation.approvals.mode == "plan"


async def test_a_plan_is_offered_while_the_card_of_the_one_before_goes(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("1. Make made.txt.")
    async with start(mode="plan") as app:
        await app.say("plan it")
        await app.sees("The plan is ready")
        (before,) = app.chat.query("ApprovalPanel.plan")
        before.remove()
        app.chat.events.offer_plan()
        await app.until(lambda: not before.is_attached, "the first card to go")
        await app.sees("The plan is ready", "Esc stays in plan mode")
        assert len(app.chat.query("ApprovalPanel.plan")) == 1


async def test_esc_leaves_the_plan_and_it_is_offered_again_after_a_resume(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("1. Make made.txt.")
    async with start(mode="plan") as app:
        await app.say("plan it")
        await app.sees("The plan is ready")
        await app.press("escape")
        await app.sees_no("The plan is ready")
        assert app.conversation.approvals.mode == "plan"
    async with start(resume_latest=True) as app:
        await app.sees("The plan is ready")
        assert app.mode_shown == "plan"


async def test_a_question_that_stands_is_not_answered_into_plan_mode(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[WRITE]), "Not made.")
    async with start() as app:
        await app.say("make it")
        await app.asked()
        await app.press("shift+tab", "shift+tab")
        await app.until(lambda: app.mode_shown == "plan", "plan")
        await app.asked()
        await app.press("y")
        await app.sees("Not made.")
    assert not (workspace / "made.txt").exists()


async def test_the_mode_can_be_switched_while_the_agent_works(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Stall(Reply("I am about to", calls=[WRITE])), "A plan.")
    async with start(mode="edits") as app:
        await app.say("make it")
        await app.sees("I am about to")
        await app.press("shift+tab")
        await app.until(lambda: app.mode_shown == "plan", "plan")
        llm.release()
        await app.sees("A plan.")
    assert not (workspace / "made.txt").exists()
    assert "Plan mode is on" in str(llm.requests[-1].body)


async def test_a_new_conversation_goes_on_planning_but_asks_about_edits_again(start: Start) -> None:
    async with start() as app:
        await app.press("shift+tab")
        await app.until(lambda: app.mode_shown == "edits", "edits")
        await app.say("/new")
        await app.until(lambda: app.mode_shown != "edits", "another mode")
        await app.press("shift+tab", "shift+tab")
        await app.until(lambda: app.mode_shown == "plan", "plan")
        before = app.conversation
        await app.say("/new")
        await app.until(lambda: app.chat.conversation not in (None, before), "the new one")
        await app.until(lambda: app.mode_shown == "plan", "plan")
        assert app.conversation.approvals.mode == "plan"
