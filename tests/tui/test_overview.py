"""Commands that tell how things stand, and what hands know from elsewhere."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.tui.actions.overview import WatchScreen
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.overlay import PanelScreen
from crushpy.tui.screens.sessions import SessionsScreen
from crushpy.tui.widgets.grace_period import ARMED

pytestmark = pytest.mark.slow

__all__ = ["start"]

WRITE = Reply(calls=[Call("write", {"file_path": "made.py", "content": "x = 1\n"})])


async def command(app: Driven, line: str) -> None:
    app.chat.prompt.draft = line
    app.chat.prompt.action_submit()
    await app.pilot.pause()


async def test_status_permissions_and_config_tell_how_things_stand(
    start: Start, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('effort = "low"\n[permissions]\nallow = ["bash(make)"]\n')
    async with start(size=(140, 40)) as app:
        await command(app, "/status")
        await app.sees(
            "openai/test-model", "thinking effort low", str(workspace)[-20:], "of 128,000", "sandbox", "mode"
        )
        await app.shows(PanelScreen)
        await app.press("escape")
        await command(app, "/permissions")
        await app.shows(PanelScreen)
        await app.sees("Permissions", "allow  bash(make)")
        await app.press("escape")
        await command(app, "/config")
        await app.sees("effort = 'low'", "config.toml")
        await command(app, "/config effort high")
        await app.sees("effort is set in")
        await command(app, "/config effort loud")
        await app.sees("loud")
    assert "high" in (home / "config.toml").read_text()


async def test_a_rule_stored_by_an_answer_is_listed_at_once(start: Start, llm: ScriptedLLM) -> None:
    llm.script(WRITE, "Made.")
    async with start(size=(140, 40)) as app:
        await app.say("make it")
        await app.asked()
        await app.until(lambda: app.approval and app.approval.has_class(ARMED))
        await app.press("m", "p")
        await app.sees("Made.")
        await app.rests()
        await command(app, "/permissions")
        await app.sees("allow  write(./")
        await app.press("escape")
        await command(app, "/status")
        await app.sees("1 allow")


async def test_the_status_names_what_was_read_and_no_cost_that_is_not_known(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.py").write_text("a = 1\n")
    llm.script(Reply(calls=[Call("view", {"file_path": "a.py"})]), "Read.")
    async with start(size=(140, 40)) as app:
        await app.say("read it")
        await app.sees("Read.")
        await app.rests()
        await command(app, "/status")
        await app.sees("files read  1 file by the agent", "cost        unknown")
        assert "$0.0" not in app.text


async def test_diff_shows_what_was_changed_and_review_sends_it(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(WRITE, "Made.", "It is fine.")
    async with start(size=(120, 40), yolo=True) as app:
        await command(app, "/diff")
        await app.sees("Changes", "has not changed any file")
        await app.press("escape")
        await app.say("make it")
        await app.sees("Made.")
        await app.rests()
        await command(app, "/diff")
        await app.sees("Changes", "+x = 1")
        await app.press("escape")
        await app.sees("Made.")
        await command(app, "/review names")
        await app.sees("It is fine.")
        await app.rests()
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "+x = 1" in sent
    assert "Look above all at: names." in sent


async def test_init_has_the_agent_write_instructions_and_shows_them_first(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(
        Reply(calls=[Call("write", {"file_path": "AGENTS.md", "content": "# Build\nmake\n"})]), "Done."
    )
    async with start(size=(120, 40), mode="edits") as app:
        await command(app, "/init")
        await app.until(lambda: app.approval is not None, "the question")
        await app.sees("make")
        assert not (workspace / "AGENTS.md").exists()
        await app.press("escape")
        approvals = app.conversation.approvals
        await app.until(lambda: not app.conversation.busy and approvals.mode == "edits", "its mode")
        await app.until(lambda: app.mode_shown == "edits", "the chip")
    async with start(resume_latest=True) as app:
        assert app.conversation.approvals.mode == "edits"
    assert "AGENTS.md" in json.dumps(llm.requests[0].body["messages"])


async def test_jobs_are_in_the_status_line_listed_with_output_and_named_when_leaving(
    start: Start, llm: ScriptedLLM
) -> None:
    job = Call("bash", {"command": "echo hello from the job; sleep 1000", "background": True})
    llm.script(Reply(calls=[job]), "It runs.")
    async with start(size=(140, 30), yolo=True) as app:
        await command(app, "/jobs")
        await app.sees("No job is running.")
        await app.say("start it")
        await app.sees("It runs.")
        await app.rests()
        await app.sees("1 job")
        jobs = app.conversation.workspace.jobs
        await app.until(lambda: "hello" in jobs.running()[0].last_lines, "its output")
        await command(app, "/jobs")
        await app.sees("Jobs", "job1 echo hello from the job; sleep 1000")
        await app.press("enter")
        await app.sees("Watch its output", "Stop it")
        await app.press("enter")
        await app.shows(WatchScreen)
        await app.sees("hello from the job")
        await app.press("escape")
        await app.shows(ChooseScreen)
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.chat.leave()
        assert "Stopped: job1, echo hello from the job; sleep 1000" in app.chat.farewell


async def test_a_job_can_be_stopped(start: Start, llm: ScriptedLLM) -> None:
    job = Call("bash", {"command": "sleep 1000", "background": True})
    llm.script(Reply(calls=[job]), "It runs.")
    async with start(size=(140, 30), yolo=True) as app:
        await app.say("start it")
        await app.sees("It runs.")
        await app.rests()
        await command(app, "/jobs")
        await app.sees("job1 sleep 1000")
        await app.press("enter")
        await app.sees("Stop it")
        await app.press("down", "enter")
        await app.sees("No job is running.")
        assert app.conversation.workspace.jobs.running() == ()


async def test_the_number_of_jobs_falls_when_one_ends_while_the_agent_rests(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(Reply(calls=[Call("bash", {"command": "cat gate", "background": True})]), "It runs.")
    async with start(size=(140, 30), yolo=True) as app:
        await app.say("start it")
        await app.sees("It runs.")
        await app.rests()
        await app.until(lambda: "1 job" in app.text.rstrip().split("\n")[-1], "the number")
        await asyncio.to_thread((workspace / "gate").write_text, "")
        await app.sees("job1 ended with exit code 0")
        await app.until(lambda: "1 job" not in app.text.rstrip().split("\n")[-1], "the number to fall")


async def test_a_prompt_of_the_command_line_is_sent_and_a_list_is_shown_to_pick_from(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script("I do.")
    async with start(prompt="do this") as app:
        await app.sees("do this", "I do.")
        await app.rests()
        await command(app, "/new")
        await app.sees_no("I do.")
    async with start(pick=True) as app:
        await app.shows(SessionsScreen)
        await app.sees("do this")
    assert len(llm.requests) == 1


async def test_a_model_holds_for_this_conversation_unless_it_is_chosen_for_all(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    async with start(size=(140, 30), model="") as app:
        await command(app, "/model openai/other")
        await app.sees("in this conversation", "openai/other always")
        assert not (home / "state.toml").exists() or "other" not in (home / "state.toml").read_text()
        await command(app, "/model openai/other always")
        await app.sees("and in new ones")
        assert "other" in (home / "state.toml").read_text()
