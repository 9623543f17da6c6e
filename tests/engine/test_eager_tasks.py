"""The engine under eager tasks, with which it runs inside the app on Python 3.12 and newer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talks

from crushpy.core.events import BoundaryCommitted, Event, PromptCommitted, SessionOpened, TextDelta, TurnEnded
from crushpy.core.messages import Usage
from crushpy.util.spawn import spawn

PACKAGE = Path(__file__).parents[2] / "crushpy"
eager = pytest.mark.usefixtures("eager_tasks")


@eager
async def test_a_task_begins_once_its_maker_holds_it_and_waits() -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("worked")

    task = spawn(work())
    steps.append("held")
    await task
    assert steps == ["held", "worked"]


@eager
async def test_a_turn_with_tools_ends_and_the_next_can_begin(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    for name in "ab":
        (workspace / name).write_text(name)
    views = [Call("view", {"file_path": name}, id=name) for name in "ab"]
    llm.script(Reply(calls=[*views, Call("bash", {"command": "echo c"}, id="c")]), "Read.", "Again.")
    talk = await talks(yolo=True)
    assert await talk.ask("Read them") == "done"
    assert not talk.conversation.busy
    assert await talk.ask("And again") == "done"
    assert [message.text for message in talk.conversation.history if message.role == "assistant"][1:] == [
        "Read.",
        "Again.",
    ]


@eager
async def test_prompt_is_queued_while_a_turn_runs(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script("One.", "Two.")
    talk = await talks()

    def answer_at_once(event: Event) -> None:
        if isinstance(event, PromptCommitted) and event.text == "first":
            talk.conversation.submit("second")

    talk.conversation.subscribe(answer_at_once)
    talk.conversation.submit("first")
    await talk.until(lambda: len(talk.of(TurnEnded)) == 2)
    prompts = [message.text for message in talk.conversation.history if message.role == "user"]
    assert prompts == ["first", "second"]


@eager
async def test_an_interrupt_right_after_the_prompt_keeps_the_prompt(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(Stall())
    talk = await talks()
    talk.conversation.submit("Never mind")
    assert talk.conversation.interrupt()
    ended = await talk.until_event(TurnEnded)
    assert ended.status == "interrupted"
    assert [event.text for event in talk.of(PromptCommitted)] == ["Never mind"]
    assert not talk.conversation.busy


@eager
async def test_a_session_ends_by_itself_and_the_turn_goes_on_in_its_child(
    talks: Talks, llm: ScriptedLLM
) -> None:
    steps = iter([1_000, 7_600])

    def work(body: dict[str, Any]) -> Reply:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("## Goal\nNotes.", usage=Usage(1_000, 50))
        tokens = next(steps, 0)
        if not tokens:
            return Reply("All done.", usage=Usage(500, 10))
        return Reply(calls=[Call("bash", {"command": f"echo {tokens}"})], usage=Usage(tokens, 10))

    llm.always(work)
    talk = await talks(flags={f'models."{MODEL}".context_window': 10_000}, yolo=True)
    assert await talk.ask("Work through the list") == "done"
    assert [event.trigger for event in talk.of(BoundaryCommitted)] == ["auto"]
    assert talk.conversation.history[-1].text == "All done."


@eager
async def test_the_model_itself_ends_a_session_and_the_turn_goes_on_in_its_child(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": "echo hi"})]),
        Reply(calls=[Call("new_session", {"summary": "## Goal\nGreet."})]),
        Reply("Back at it.", chunk=2),
    )
    talk = await talks(flags={"compaction.method": "llm"}, yolo=True)
    assert await talk.ask("Greet, then start afresh") == "done"
    assert len(talk.of(BoundaryCommitted)) == 1
    assert len(talk.of(SessionOpened)) == 2
    assert "".join(event.text for event in talk.of(TextDelta)).endswith("Back at it.")


def test_tasks_are_started_in_the_one_way_that_is_the_same_on_every_python() -> None:
    starts = re.compile(r"\b(?:asyncio|loop)\.create_task\(|\bensure_future\(")
    found = [
        f"{source.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for source in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if starts.search(line)
    ]
    assert not found, "Start tasks with crushpy.util.spawn.spawn:\n" + "\n".join(found)
