"""Thinking, from the first word on: how long it took, when it happens and when the session is resumed."""

import re

import pytest
from driving import Start, start
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]

TOOK = re.compile(r"▸ Thought for [1-9]\d* s  what is asked")


async def test_thinking_time_is_shown_also_after_a_resume(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Forty-two.", thinking="what is asked"), after=1))
    async with start() as app:
        await app.say("well?")
        await app.sees("▸ Thinking…  what is asked")
        await app.until(lambda: re.search(r"[Tt]hinking\W+[1-9]\d*s\b", app.text), "a second of thinking")
        llm.release()
        await app.sees("Forty-two.")
        await app.rests()
        assert TOOK.search(app.text), app.text
        session = app.conversation.info.id
    async with start(session=session, model="") as app:
        await app.sees("Forty-two.")
        assert TOOK.search(app.text), app.text


async def test_thinking_before_a_call_is_over_when_the_call_comes(start: Start, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(thinking="look around", calls=[Call("ls", {})]), Reply("Two files.", thinking="nothing more")
    )
    async with start() as app:
        await app.say("what is here?")
        await app.sees("Two files.")
        await app.rests()
        assert re.search(r"▸ Thought( for \d+ s)?  look around", app.text), app.text
        assert "Thinking…" not in app.text
