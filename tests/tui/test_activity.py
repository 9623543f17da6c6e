"""The line above the prompt: what runs, for how long, and what came of it. Nothing ticks at rest."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from asking import armed, bash
from driving import Driven, Start, start
from scripted_llm.replies import Call, Fail, RateLimit, Raw, Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.core.events import READING_PROMPT, Progress, PromptCommitted
from crushpy.core.messages import Usage
from crushpy.tui.activity import Activity, brief_duration
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.widgets.status_bar import StatusBar

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def rests(app: Driven) -> None:
    await app.rests()
    await app.until(lambda: not app.chat.activity.ticking, "the line to go")
    await app.pilot.pause()
    assert "Esc stops" not in app.text


async def test_a_model_that_takes_its_time_is_told_of_and_nothing_ticks_afterwards(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("Hello.", usage=Usage(input_tokens=3_400, output_tokens=512)), after=0))
    async with start() as app:
        assert not app.chat.activity.ticking and "Esc stops" not in app.text
        await app.say("hi")
        await app.sees("Waiting for the model", "tokens ↑", "Esc stops")
        assert app.chat.activity.ticking
        llm.release()
        await app.sees("Hello.")
        await rests(app)


def test_reading_of_the_prompt_is_shown_in_tokens_instead_of_waiting() -> None:
    activity = Activity(lambda: 7.0, lambda: 2_200)
    activity.hear(PromptCommitted("m", "hi"))
    assert [row.what for row in activity.rows()] == ["Waiting for the model"]
    activity.hear(Progress(READING_PROMPT, 1_400, 2_200))
    (row,) = activity.rows()
    assert (row.what, row.more) == ("The server is reading the prompt", "1,400 of 2,200 tokens")
    activity.hear(Progress(READING_PROMPT, 2_200, 2_200))
    assert [row.what for row in activity.rows()] == ["Waiting for the model"]


async def test_progress_row_shows_its_whole_label_in_a_narrow_terminal(
    start: Start, llm: ScriptedLLM
) -> None:
    progress = {"choices": [], "prompt_progress": {"total": 2_200, "cache": 0, "processed": 1_400}}
    llm.script(Raw(f"data: {json.dumps(progress)}\n\n", hang=True))
    async with start(size=(80, 24)) as app:
        await app.say("hi")
        await app.sees("The server is reading the prompt", "1,400 of 2,200 tokens", "Esc stops")
        await app.press("escape")
        await rests(app)


async def test_layout_stays_when_work_begins_or_ends(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Hello."), after=0))
    async with start(size=(100, 30)) as app:
        before = app.chat.transcript.region, app.chat.prompt.region
        await app.say("hi")
        await app.sees("Waiting for the model")
        assert (app.chat.transcript.region, app.chat.prompt.region) == before
        llm.release()
        await app.sees("Hello.")
        await rests(app)
        assert (app.chat.transcript.region, app.chat.prompt.region) == before


async def test_retries_are_one_line_that_counts_down_and_goes(start: Start, llm: ScriptedLLM) -> None:
    llm.script(RateLimit(retry_after=2), Fail(503, headers={"retry-after": "2"}), "Here.")
    async with start() as app:
        await app.say("hi")
        await app.sees("429: trying again in 2 s · 1 of 5")
        await app.sees("429: trying again in 1 s · 1 of 5")
        await app.sees("503: trying again in 2 s · 2 of 5")
        assert app.text.count("rying again") == 1 and "429:" not in app.text
        await app.sees("503: trying again in 1 s · 2 of 5")
        await app.sees("Here.")
        await rests(app)
        assert "rying again" not in app.text


async def test_a_try_that_takes_its_time_is_waited_for(start: Start, llm: ScriptedLLM) -> None:
    llm.script(RateLimit(retry_after=0.3), Stall(Reply("Here."), after=0))
    async with start() as app:
        await app.say("hi")
        await app.sees("429: trying again in 1 s · 1 of 5")
        await app.sees("Waiting for the model")
        assert "rying again" not in app.text
        llm.release()
        await app.sees("Here.")
        await rests(app)


async def test_thinking_and_writing_are_told_apart(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("", thinking="well, let me see " * 40, chunk=10), after=8))
    async with start() as app:
        await app.say("hi")
        await app.sees("Thinking 0s")
        llm.release()
        await rests(app)


async def test_a_running_command_has_its_time_and_its_last_line(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash("echo compiling; echo 3 of 7 done; cat gate"), "Built.")
    async with start(yolo=True) as app:
        await app.say("build")
        await app.sees("Running echo compiling; echo 3 of 7 done; cat gate", "3 of 7 done")
        row = app.chat.activity.region.y
        await app.until(lambda: app.text.split("\n")[row].endswith("3 of 7 done"), "the last line")
        await asyncio.to_thread((workspace / "gate").write_text, "")
        await app.sees("Built.")
        await rests(app)


async def test_calls_side_by_side_are_counted_and_told_one_by_one(start: Start, llm: ScriptedLLM) -> None:
    tasks = [Call("task", {"prompt": f"look at {name}", "read_only": True}, f"call_{name}") for name in "ab"]
    looked = Stall(Reply("Looked."), after=0)
    llm.script(Reply(calls=tasks), looked, looked, "Both looked at.")
    async with start() as app:
        await app.say("look")
        await app.sees("Task look at a", "Task look at b", "step 1")
        llm.release()
        llm.release()
        await app.sees("Both looked at.")
        await rests(app)


async def test_a_sub_agent_has_a_live_line_that_opens_its_own_transcript(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("needle\n")
    errand = Reply(calls=[Call("task", {"prompt": "find the needle"})])
    look = Reply("I look.", calls=[Call("grep", {"pattern": "needle"})], usage=Usage(1_200, 30))
    llm.script(errand, look, Stall(Reply("It is in a.txt."), after=0), "Found.")
    async with start() as app:
        await app.say("find it")
        await app.sees("Task find the needle", "step 2 · 1.2k tokens", "thinking", "click opens")
        await app.pilot.click(app.chat.activity, offset=(5, 0))
        await app.shows(SessionReaderScreen)
        await app.sees("find the needle", "I look.", "needle")
        llm.release()
        await app.sees("It is in a.txt.")
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.sees("Found.")
        await rests(app)


async def test_a_key_on_the_call_opens_the_sub_agents_transcript_then_and_later(
    start: Start, llm: ScriptedLLM
) -> None:
    errand = Reply(calls=[Call("task", {"prompt": "think it over"})])
    llm.script(errand, Stall(Reply("It is well."), after=0), "Done so.")
    async with start() as app:
        await app.say("ask somebody")
        await app.sees("Task think it over", "step 1")
        for words in ("think it over", "It is well."):
            await app.press("tab", "up", "up", "up", "down", "down", "s")
            await app.shows(SessionReaderScreen)
            await app.sees(words)
            await app.press("escape")
            await app.shows(type(app.chat))
            llm.release()
            await app.sees("Done so.")
            await app.press("escape")


async def test_a_question_waits_without_a_tick(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.until(lambda: not app.chat.activity.ticking, "the ticks to end")
        await app.press("y")
        await app.sees("Made it.")
        await rests(app)


async def test_a_command_of_the_users_own_is_told_of_too(start: Start, workspace: Path) -> None:
    os.mkfifo(workspace / "gate")
    async with start() as app:
        await app.say("!echo begun; cat gate")
        await app.sees("Running echo begun; cat gate", "Esc stops")
        await asyncio.to_thread((workspace / "gate").write_text, "")
        await app.until(lambda: not app.chat.activity.ticking, "the line to go")


async def test_a_long_command_leaves_room_for_the_last_line(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash(f"echo {'compiling ' * 12}; echo 3 of 7 done; cat gate"), "Built.")
    async with start(yolo=True) as app:
        await app.say("build")
        await app.sees("Running echo compiling", "… 0s · Esc stops  3 of 7 done")
        await asyncio.to_thread((workspace / "gate").write_text, "")
        await rests(app)


async def test_a_call_of_a_sub_agent_counts_to_the_step_that_asked_for_it(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    errand = Reply(calls=[Call("task", {"prompt": "build it"})])
    llm.script(errand, bash("cat gate"), "It is built.", "Done so.")
    async with start(yolo=True) as app:
        await app.say("ask somebody")
        await app.sees("Task build it", "step 1 ·", "Run cat gate")
        await asyncio.to_thread((workspace / "gate").write_text, "")
        await app.sees("Done so.")
        await rests(app)


async def test_activity_shows_the_smaller_request_after_a_compaction(start: Start, llm: ScriptedLLM) -> None:
    afresh = Call("new_session", {"summary": "We counted words. Next: the letters."})
    llm.script(
        Reply("word " * 400, usage=Usage(90_000, 500)),
        Reply(calls=[afresh], usage=Usage(91_000, 20)),
        Stall(Reply("On with the letters."), after=0),
    )
    async with start(compaction="llm") as app:
        await app.say("count")
        await app.rests()
        await app.say("start afresh")
        await app.sees("New session", "Waiting for the model")
        await app.until(lambda: "91k tokens ↑" not in app.text, "the figure of the new window")
        assert "k tokens ↑" in app.text
        llm.release()
        await rests(app)


async def test_a_summary_that_takes_its_time_has_a_bar_that_grows_and_goes(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(
        Reply("word " * 4_000),
        "Counted.",
        Stall(Reply("## Goal\n" + "Count the letters. " * 40, chunk=200), after=2),
    )
    async with start() as app:
        for words in ("count " * 60, "and now?"):
            await app.say(words)
            await app.rests()
        await app.say("/compact")
        await app.sees("Making a summary", "━━━", "%", "Esc stops")
        assert app.text.count("Making a summary") == 1
        llm.release()
        await app.sees("Compaction", "Accept")
        await app.until(lambda: not app.chat.activity.ticking, "the ticks to end")
        await app.press("a")
        await app.sees("session 2")
        await rests(app)
        assert "Making a summary" not in app.text


async def test_a_summary_that_is_stopped_leaves_no_bar(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply("word " * 4_000), "Counted.", Stall(Reply("## Goal\nCount."), after=0))
    async with start() as app:
        for words in ("count " * 60, "and now?"):
            await app.say(words)
            await app.rests()
        await app.say("/compact")
        await app.sees("Making a summary", "━━━ 0%")
        await app.press("escape")
        await app.until(lambda: "━━━ 0%" not in app.text, "the bar to go")
        await rests(app)


async def test_running_call_is_shown_once(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("word " * 40, chunk=10), after=8), bash("touch made"), "Made.")
    async with start() as app:
        await app.say("say it")
        await app.sees("Writing")
        status = app.chat.query_one(StatusBar)
        assert "writing" not in status.render().plain.lower()
        llm.release()
        await rests(app)
        await app.say("make it")
        await armed(app)
        await app.until(lambda: status.render().plain.startswith("asks you"), "the status line to say so")
        await app.press("y")
        await app.sees("Made.")
        await rests(app)
        assert "asks you" not in app.text


def test_durations_are_brief() -> None:
    assert [brief_duration(seconds) for seconds in (41.2, 125, 3_720)] == ["41s", "2m05s", "1h02m"]


async def test_the_end_of_a_turn_is_one_line_which_goes_with_the_turn(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("true"), "Hello.", "Again.")
    async with start(size=(80, 24)) as app:
        await app.say("hi")
        await app.sees("Hello.", "s · 2 steps · ", " tokens")
        await app.say("and now")
        await app.sees("Again.", "s · 1 step · ")
        await app.say("/rewind")
        await app.press("enter", "enter")
        await app.sees_no("1 step")
    async with start(size=(80, 24), resume_latest=True) as app:
        await app.sees("Hello.", "s · 2 steps · ")
