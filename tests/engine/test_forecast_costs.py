"""The forecast before a compaction, against what it really carries and costs, and after one."""

from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talks

from crushpy.core.events import BoundaryCommitted
from crushpy.core.messages import Usage

pytestmark = pytest.mark.slow

INPUT, OUTPUT = 0.1, 0.5
FLAGS = {
    f'models."{MODEL}".context_window': 200_000,
    f'models."{MODEL}".input_cost': INPUT,
    f'models."{MODEL}".output_cost': OUTPUT,
}
NOTES = Reply("## Goal\n" + "The work goes on as planned. " * 250, usage=Usage(20_000, 1_800))
LOG = Call("bash", {"command": "python3 -c \"print('some words of a log ' * 500)\" | fold -w 80"})
TURNS = 8


async def test_the_cost_of_compacting_is_that_of_the_planned_size(talks: Talks, llm: ScriptedLLM) -> None:
    used = 4_000

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal used
        if "<transcript>" in str(body["messages"][-1]):
            return NOTES
        used += 2_600 if body["messages"][-1]["role"] == "tool" else 100
        usage = Usage(used, 100)
        return (
            Reply("Done.", usage=usage) if used % 2_700 == 4_000 % 2_700 else Reply(calls=[LOG], usage=usage)
        )

    llm.always(answer)
    talk = await talks(flags=FLAGS, yolo=True)
    for number in range(TURNS):
        await talk.ask(f"Take part {number} of the work")
    context = talk.conversation.context
    await context.count_exactly()
    ahead = context.forecast()
    assert (ahead.turns, ahead.next_turns, ahead.tokens_per_turn) == (TURNS, 10, 2_700)
    assert await context.compact()
    (boundary,) = talk.of(BoundaryCommitted)

    def next_turns(size: int) -> float:
        """Ten turns of two calls, each of which reads everything."""
        tokens = sum(2 * (size + (turn + 0.5) * 2_700) for turn in range(10))
        return (tokens * INPUT + 10 * 200 * OUTPUT) / 1_000_000

    compacting = boundary.cost + next_turns(boundary.tokens_after)
    continuing = next_turns(boundary.tokens_before)
    assert ahead.cost_going_on == pytest.approx(continuing, rel=0.02)
    assert ahead.cost_compacted == pytest.approx(compacting, rel=0.05)
    assert compacting < continuing


async def test_pace_after_a_compaction_does_not_count_what_was_carried(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(Reply(calls=[LOG]), "Done.", Reply(NOTES.text))
    talk = await talks(flags=FLAGS, yolo=True)
    await talk.ask("Take the first part of the work")
    context = talk.conversation.context
    assert await context.compact()
    (boundary,) = talk.of(BoundaryCommitted)
    llm.script(Reply("Done.", usage=Usage(boundary.tokens_after + 900, 100)))
    await talk.ask("Take the next part")
    ahead = context.forecast()
    assert ahead.turns == 1 and ahead.tokens_per_turn is not None
    assert ahead.tokens_per_turn == pytest.approx(1_000, rel=0.1)
