"""Todos stay in view until they are done; code blocks are copied one by one; `!!` hands its output on."""

import pytest
from driving import Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]


def todos(*states: str) -> Reply:
    items = [{"text": f"part {number}", "status": state} for number, state in enumerate(states, 1)]
    return Reply(calls=[Call("todos", {"todos": items})])


async def test_todo_stays_in_view_until_done(start: Start, llm: ScriptedLLM) -> None:
    llm.script(todos("completed", "in_progress", "pending"), "Well.", todos(*["completed"] * 3), "All done.")
    async with start() as app:
        await app.say("begin")
        await app.sees("Well.", "▸ 1/3 · now: part 2")
        line = app.chat.todos
        await app.press("f8")
        await app.sees("▾ 1/3 · now: part 2")
        assert line.region.height == 4
        await app.press("f8")
        await app.until(lambda: line.region.height == 1)
    async with start(resume_latest=True) as app:
        await app.sees("▸ 1/3 · now: part 2")
        await app.say("go on")
        await app.sees("All done.")
        await app.until(lambda: not app.chat.todos.display, "the line to go")


async def test_a_key_copies_one_code_block_after_the_other(start: Start, llm: ScriptedLLM) -> None:
    llm.script("First\n```\none\n```\nthen\n```\ntwo\n```\n")
    async with start() as app:
        await app.say("show me")
        await app.sees("then", "two")
        await app.rests()
        for code in ("one", "two", "one"):
            await app.press("tab", "y")
            await app.until(lambda code=code: app.app.clipboard == code, code)
            await app.press("escape")


async def test_two_marks_put_the_output_into_the_prompt(start: Start) -> None:
    async with start() as app:
        await app.say("!!echo seen by both")
        await app.until(lambda: "seen by both" in app.chat.prompt.text, "the output in the prompt")
        assert app.chat.prompt.text == "I ran `echo seen by both`:\nseen by both\n"
