"""Limits in the app: a turn pauses, the user lets it go on or stops it, and the status line says the rest."""

from asking import armed
from driving import Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.core.messages import Usage

__all__ = ["start"]

LOOKS = Reply(calls=[Call("ls", {})], usage=Usage(100))


async def test_a_turn_pauses_at_its_steps_and_at_the_budget(start: Start, llm: ScriptedLLM) -> None:
    llm.always(LOOKS)
    async with start(size=(120, 30), max_steps=2) as app:
        await app.say("/budget 250")
        await app.sees("250 tokens left")
        await app.say("look around")
        await armed(app)
        assert "--max-steps 2 reached" in app.text and len(llm.requests) == 2
        await app.press("y")
        await app.sees("The budget of this conversation is used up: 300 tokens of 250 tokens.")
        await armed(app)
        assert "80% of the budget" in app.text and len(llm.requests) == 3
        await app.press("n")
        await app.rests()
        await app.sees("0 tokens left")
        assert len(llm.requests) == 3
        await app.say("/budget 0")
        await app.sees("There is no budget")
        await app.sees_no("tokens left")


async def test_budget_that_is_none_is_refused_with_both_forms(start: Start, llm: ScriptedLLM) -> None:
    async with start(size=(120, 30)) as app:
        await app.say("/budget five")
        await app.sees("'five' is not a budget", "5usd", "200k")
        assert not llm.requests
