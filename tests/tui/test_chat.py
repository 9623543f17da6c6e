"""The chat, by its keys."""

import json
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from driving import MODEL, Start, start
from prompt_host import send
from scripted_llm.replies import Call, Fail, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.headless import is_alive
from textual import events

from crushpy.core.events import (
    Error,
    JobEnded,
    Notice,
    PromptCommitted,
    TitleChanged,
    TodosChanged,
    TurnEnded,
)
from crushpy.core.messages import Todo, Usage
from crushpy.tui.screens import chat_host
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.help import HelpScreen
from crushpy.tui.screens.sessions import SessionsScreen
from crushpy.tui.widgets.prompt_queue import QueueView

pytestmark = pytest.mark.slow

__all__ = ["start"]

HALF = Stall(Reply("Half an answer and more", chunk=4), after=3)


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


def said_to(llm: ScriptedLLM, number: int = -1) -> str:
    """What the model was sent last, or in that request."""
    return json.dumps(llm.requests[number].body["messages"])


def state(home: Path) -> dict[str, object]:
    return tomllib.loads((home / "state.toml").read_text())


# --- prompts and the queue -------------------------------------------------------------------------------


async def test_a_prompt_sent_before_the_engine_is_open_is_sent_once(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Here I am.")
    async with start(wait=False) as app:
        assert app.chat.conversation is None
        app.chat.prompt.draft = "are you there?"
        app.chat.prompt.action_submit()
        await app.sees("Here I am.")
        await app.rests()
        assert app.text.count("are you there?") == 1
        assert app.chat.prompt.draft == ""
    (request,) = llm.requests
    assert said_to(llm).count("are you there?") == 1
    assert request.body["messages"][-1]["content"] == "are you there?"


async def test_a_command_given_before_the_engine_is_open_is_carried_out(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    async with start(wait=False) as app:
        assert app.chat.conversation is None
        app.chat.prompt.draft = "/compaction llm"
        app.chat.prompt.action_submit()
        await app.sees("Compaction method: llm", "compaction llm")


async def test_a_prompt_typed_while_the_agent_works_waits_in_view_and_goes_out_by_itself(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF, "To the second.")
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.say("second")
        await app.sees("1 queued", "Enter again: stop the reply and send now", "second")
        assert len(llm.requests) == 1
        llm.release()
        await app.sees("To the second.")
        await app.sees_no("queued")
    assert said_to(llm).count("second") == 1


async def test_the_queue_is_gone_from_view_as_soon_as_its_prompt_is_sent(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF, HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.say("second")
        await app.sees("1 queued")
        await app.press("escape")
        await app.sees("Interrupted.")
        await app.press("enter")
        await llm.wait_requests(2)
        await app.sees_no("queued")
        assert app.conversation.busy


async def test_a_queued_prompt_is_taken_back_before_the_draft(start: Start, llm: ScriptedLLM) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.say("second")
        await app.sees("1 queued")
        await app.type("a draft")
        app.chat.query_one(QueueView).focus()
        await app.press("enter")
        await app.until(lambda: not app.conversation.prompts.queue, "the queue to be empty")
        await app.sees_no("queued")
        assert app.chat.prompt.draft == "second\n\na draft"
        assert app.chat.prompt.has_focus


async def test_a_queued_prompt_is_removed_with_a_key(start: Start, llm: ScriptedLLM) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.say("second")
        await app.say("third")
        await app.sees("2 queued")
        await app.press("tab", "tab")
        await app.sees("Del removes")
        await app.press("delete")
        await app.sees("1 queued")
        assert [prompt.text for prompt in app.conversation.prompts.queue] == ["third"]
        await app.press("delete")
        await app.sees_no("queued")
        await app.type("x")
        await app.until(lambda: app.chat.prompt.draft == "x", "keys to reach the prompt again")


async def test_unanswered_prompt_returns_to_the_input(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(headers=False), "Done.")
    async with start() as app:
        await app.say("first")
        await llm.wait_requests(1)
        await app.press("escape")
        await app.until(lambda: app.chat.prompt.draft == "first", "the prompt to return")
        await app.sees_no("queued")
        await app.press("enter")
        await app.sees("Done.")
    assert said_to(llm).count("first") == 1


async def test_unanswered_prompt_waits_in_the_queue_when_there_is_a_draft(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(Stall(headers=False), "Done.")
    async with start() as app:
        await app.say("first")
        await llm.wait_requests(1)
        await app.type("a draft")
        await app.press("escape")
        await app.sees("1 queued")
        assert app.chat.prompt.draft == "a draft"
        assert [prompt.text for prompt in app.conversation.prompts.queue] == ["first"]
        app.chat.prompt.draft = ""
        await app.press("enter")
        await app.sees("Done.")
    assert said_to(llm).count("first") == 1


def stored_rows(home: Path) -> list[tuple[object, ...]]:
    tables = ("session", "message", "message_override", "timeline_note")
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        return [row for table in tables for row in database.execute(f"SELECT '{table}', * FROM {table}")]


async def test_event_handlers_of_the_app_write_nothing(start: Start, llm: ScriptedLLM, home: Path) -> None:
    llm.script("Here.")
    async with start() as app:
        await app.say("first")
        await app.sees("Here.")
        await app.rests()
        before, prompt = stored_rows(home), app.conversation.history[0]
        for event in (
            PromptCommitted(prompt.id, "first"),
            Notice("Careful.", "warning"),
            JobEnded("job_1", "make", "job_1 ended"),
            TodosChanged((Todo("tidy up"),)),
            TitleChanged("Another"),
            Error("failed", "It broke."),
            TurnEnded("interrupted"),
        ):
            app.chat.events.hear(event)
        await app.rests()
        await app.conversation.sessions.latest(app.conversation.info.cwd)  # waits for storage
        assert stored_rows(home) == before


# --- commands --------------------------------------------------------------------------------------------


async def test_a_slash_command_switches_the_compaction_method_and_it_is_remembered(
    start: Start, home: Path
) -> None:
    async with start() as app:
        await app.sees("compaction auto")
        await app.say("/compaction llm")
        await app.sees("Compaction method: llm (the model decides).", "compaction llm")
        await app.say("/compaction sometimes")
        await app.sees("'sometimes' is not one of auto, llm.")
    assert state(home)["compaction"] == {"method": "llm"}


async def test_an_unknown_command_is_named_and_the_draft_stays(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        await app.say("/nonsense")
        await app.sees("There is no command /nonsense")
        assert app.chat.prompt.draft == "/nonsense"
        assert not llm.requests


async def test_a_hand_off_without_words_says_how_it_is_done(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        app.chat.prompt.draft = "/handoff"
        app.chat.prompt.action_submit()
        await app.sees("Run /handoff TEXT.")
        assert app.conversation.info.generation == 0


async def test_a_hand_off_is_shown_as_a_compaction_and_undone(start: Start, llm: ScriptedLLM) -> None:
    llm.script("The answer is 42.", "Still 42.")
    async with start() as app:
        await app.say("what is the answer?")
        await app.sees("The answer is 42.")
        await app.rests()
        await app.say("/handoff we know the answer")
        await app.sees("Context compacted", "session 2")
        await app.rests()
        await app.sees_no("compacting")
        app.chat.prompt.draft = "/undo-compaction"
        app.chat.prompt.action_submit()
        await app.sees("Undo the last compaction (manual")
        await app.press("enter")
        await app.sees("Compaction undone", "The answer is 42.")
        await app.sees_no("session 2")
        await app.rests()
        await app.say("sure?")
        await app.sees("Still 42.")
    assert "The answer is 42." in said_to(llm)


async def test_the_method_dialog_filters_by_what_is_typed(start: Start) -> None:
    async with start() as app:
        await app.press("ctrl+t")
        await app.shows(ChooseScreen)
        await app.sees("Auto", "crushpy decides", "LLM", "the model decides")
        await app.press(*"model")
        await app.sees("│ model ")
        await app.sees_no("crushpy decides")
        await app.press("enter")
        await app.sees("Compaction method: llm", "compaction llm")


async def test_escape_in_the_method_dialog_changes_nothing(start: Start, home: Path) -> None:
    async with start() as app:
        await app.press("ctrl+t")
        await app.shows(ChooseScreen)
        await app.press("down", "escape")
        await app.shows(type(app.chat))
        await app.sees("compaction auto")
    assert not (home / "state.toml").exists()


# --- approvals -------------------------------------------------------------------------------------------


async def test_the_question_of_a_sub_agent_says_so(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    errand = Reply(calls=[Call("task", {"prompt": "make a file"})])
    llm.script(errand, bash("touch made"), "Made by the task.", "The task is done.")
    async with start() as app:
        await app.say("have it made")
        await app.asked()
        await app.sees("Run `touch made`?  for a task")
        await app.sees("Run touch made")  # what the sub-agent does is seen while it works
        await app.press("y")
        await app.sees("The task is done.", "2 steps")
    assert (workspace / "made").exists()


async def test_a_denial_goes_to_the_model_with_the_user_s_words(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch never"), "As you wish.")
    async with start() as app:
        await app.say("make it")
        await app.asked()
        await app.press("n")
        await app.sees("what the agent should do instead")
        await app.type("use mkdir instead")
        await app.press("enter")
        await app.sees("As you wish.")
        assert app.approval is None
        assert app.chat.prompt.draft == ""
    assert not (workspace / "never").exists()
    assert "The user denied this call. use mkdir instead" in said_to(llm)


async def test_escape_takes_the_denial_back_and_asks_again(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await app.asked()
        await app.press("n")
        await app.sees("what the agent should do instead")
        await app.press("escape")
        await app.sees_no("what the agent should do instead")
        await app.press("y")
        await app.sees("Made it.")


async def test_always_stores_the_rule_that_was_shown(start: Start, llm: ScriptedLLM, home: Path) -> None:
    llm.script(bash("touch made"), "Once.", bash("touch made"), "Twice.")
    async with start() as app:
        await app.say("make it")
        await app.asked()
        await app.sees("don't ask again for `touch made` in this project")
        await app.press("a")
        await app.sees("Once.")
        await app.rests()
        await app.say("again")
        await app.sees("Twice.")
        assert app.approval is None
    (rules,) = (home / "project_rules").glob("*.toml")
    assert tomllib.loads(rules.read_text()) == {"permissions": {"allow": ["bash(touch made)"]}}
    assert not (home / "state.toml").exists() or "permissions" not in state(home)


async def test_escape_at_a_question_interrupts_and_nothing_is_done(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch never"))
    async with start() as app:
        await app.say("make it")
        await app.asked()
        await app.press("escape")
        await app.sees("Interrupted.")
        await app.until(lambda: app.approval is None and app.chat.prompt.has_focus)
    assert not (workspace / "never").exists()


# --- settings --------------------------------------------------------------------------------------------


async def test_a_theme_is_switched_and_holds_the_next_time(start: Start, home: Path) -> None:
    async with start() as app:
        await app.say("/theme nord")
        await app.until(lambda: app.app.theme == "nord")
        await app.say("/theme nosuch")
        await app.sees("There is no theme 'nosuch'")
    assert state(home)["theme"] == "nord"
    async with start() as app:
        await app.until(lambda: app.app.theme == "nord")


async def test_a_key_from_the_settings_replaces_the_usual_one(start: Start, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[keys]\nhelp = "f6"\ncompact = "f7"\n')
    async with start(size=(100, 140)) as app:
        await app.press("f6")
        await app.shows(HelpScreen)
        await app.until(lambda: any("F7" in line and "/compact " in line for line in app.text.splitlines()))
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.press("f1")
        await app.pilot.pause()
        assert app.app.screen is app.chat
        await app.press("ctrl+r")
        await app.shows(SessionsScreen)


async def test_a_command_without_a_usual_key_gets_the_one_from_the_settings(start: Start, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[keys]\ntoggle_yolo = "f7"\n')
    async with start() as app:
        await app.press("f7")
        await app.sees("Yolo is on: everything that is not denied")


# --- the status line -------------------------------------------------------------------------------------


async def test_the_gauge_marks_an_estimate_and_an_unknown_window(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hi.", usage=Usage(input_tokens=32_000, output_tokens=5)))
    async with start() as app:
        await app.until(lambda: "~" in status_line(app.text) and status_line(app.text).rstrip().endswith("?"))
        await app.say("hello")
        await app.sees("Hi.")
        await app.rests()
        await app.sees("25% 32k/128k?")
        assert "~" not in status_line(app.text)


def status_line(text: str) -> str:
    return text.splitlines()[-1]


async def test_a_known_window_has_no_question_mark(start: Start, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 50_000\n')
    async with start() as app:
        await app.sees("/50k")
        assert "?" not in status_line(app.text)


# --- errors and leaving ----------------------------------------------------------------------------------


async def test_a_refused_key_is_told_with_the_way_out_and_the_app_stays_usable(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(Fail(401, message="Incorrect API key provided"), "Now it works.")
    async with start() as app:
        await app.say("hello")
        await app.sees("OPENAI_API_KEY")
        await app.rests()
        await app.say("again")
        await app.sees("Now it works.")


async def test_an_engine_that_cannot_open_is_told_and_new_tries_again(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    llm.script("Now I am.")
    home.mkdir(mode=0o700)
    config = home / "config.toml"
    config.write_text("model = [")
    async with start(wait=False) as app:
        await app.sees("config.toml")
        app.chat.prompt.draft = "anybody there?"
        app.chat.prompt.action_submit()
        await app.sees("then press Ctrl+N (/new)")
        assert app.chat.prompt.draft == "anybody there?" and "is kept" not in app.text
        config.write_text("")
        await app.press("ctrl+n")
        await app.opened()
        await app.press("enter")
        await app.sees("test-model", "anybody there?", "Now I am.")


async def test_a_sent_prompt_returns_when_opening_fails(start: Start, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("model = [")
    async with start(wait=False, prompt="look at this") as app:
        await app.sees("config.toml")
        await app.until(lambda: app.chat.prompt.draft == "look at this", "the prompt")


async def test_quitting_asks_while_something_runs(start: Start, llm: ScriptedLLM) -> None:
    job = Call("bash", {"command": "sleep 1000", "background": True})
    llm.script(Stall(Reply("Half an answer and more", chunk=4), after=3), Reply(calls=[job]), "Started.")
    async with start(yolo=True) as app:
        await app.say("hello")
        await app.sees("Half an")
        await app.press("ctrl+q")
        await app.sees("Quit crushpy?", "The agent is working.")
        await app.press("escape")
        assert app.conversation.busy
        await app.press("escape")
        await app.rests()
        await app.press("ctrl+u")
        await app.say("start it")
        await app.sees("Started.")
        await app.rests()
        await app.say("/quit")
        await app.sees("Quit crushpy?", "is running: sleep 1000")
        await app.press("enter")
        await app.sees_no("Quit crushpy?")
        await app.press("ctrl+q")
        await app.sees("Quit crushpy?")
        await app.press("ctrl+q")
        await app.until(lambda: app.app._exit, "the app to leave")


async def test_the_flag_of_the_method_holds_for_the_process(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Well.")
    async with start(compaction="llm") as app:
        await app.say("/new")
        await app.until(lambda: app.chat.conversation is not None, "another one")
        assert app.conversation.info.compaction == "llm"
        await app.say("/compaction auto")
        await app.sees("Compaction method: auto", "it also holds for later conversations")
        before = app.conversation
        await app.say("/new")
        await app.until(lambda: app.chat.conversation not in (None, before), "another one")
        assert app.conversation.info.compaction == "auto"


@pytest.fixture
def patient_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys may be far apart on a busy machine."""
    monkeypatch.setattr(chat_host, "QUIT_WINDOW_S", 60.0)


@pytest.mark.usefixtures("patient_quit")
async def test_ctrl_c_twice_leaves_and_tells_how_to_resume(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hi.")
    async with start() as app:
        await app.say("hello")
        await app.sees("Hi.")
        await app.rests()
        session = app.conversation.info.id
        await app.press("ctrl+c")
        await app.until(lambda: "Ctrl+C again" in app.notices)
        assert app.app.is_running
        await app.press("ctrl+c")
        await app.until(lambda: app.app._exit)
        resume, done = app.app.farewell.splitlines()
        assert resume == f"To resume: crushpy --session {session}"
        assert done.endswith("all processes ended.")


@pytest.mark.usefixtures("patient_quit")
async def test_ctrl_c_interrupts_first_and_empties_the_prompt_before_it_leaves(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("hello")
        await app.sees("Half an")
        await app.type("a draft")
        await app.press("ctrl+c")
        await app.sees("Interrupted.")
        await app.rests()
        assert app.chat.prompt.draft == "a draft"
        await app.press("ctrl+c")
        assert app.chat.prompt.draft == ""
        assert not app.app._exit
        await app.press("ctrl+c")
        await app.until(lambda: app.app._exit)


# --- before the first reply ------------------------------------------------------------------------------


async def test_a_prompt_that_no_model_could_be_asked_is_shown_and_kept(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with start(model="anthropic/claude-sonnet-4-5") as app:
        await app.say("the question of my life")
        await app.sees("There is no key for anthropic")
        assert "▌ the question of my life" in app.text
        assert app.chat.conversation is not None and app.chat.conversation.history


# --- a large paste ---------------------------------------------------------------------------------------


async def test_large_paste_is_folded_and_leaves_the_question_in_view(start: Start, llm: ScriptedLLM) -> None:
    llm.script("A log.")
    pasted = "".join(f"line {number} of the log\n" for number in range(5_000))
    async with start(size=(100, 30)) as app:
        await send(app.pilot, events.Paste(pasted))
        await app.type("what is this?")
        await app.press("enter")
        await app.sees("[pasted 5,000 lines] what is this?", "A log.")
        assert "line 17 of the log" not in app.text
        assert "line 4999 of the log" in said_to(llm)
    async with start(size=(100, 30), resume_latest=True) as app:
        await app.sees("[pasted 5,000 lines] what is this?")
        await app.press("tab", "home", "enter")
        await app.sees("line 17 of the log")


# --- the user's own line ---------------------------------------------------------------------------------


async def test_a_command_of_the_user_s_own_settings_adds_a_line_to_the_status_bar(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    count = workspace / "runs"
    command = f"cat > {workspace}/told; echo x >> {count}; printf 'my \\033[31mline\\nsecond'"
    (home / "config.toml").write_text(f"[status_line]\ncommand = {json.dumps(command)}\n")
    llm.script("Hello.")
    async with start(size=(160, 30)) as app:
        await app.sees("my line")
        assert "second" not in app.text
        told = json.loads((workspace / "told").read_text())
        assert (told["model"], told["cwd"]) == (MODEL, str(workspace))
        before = count.read_text()
        app.chat.status.refresh()
        await app.say("hi")
        await app.sees("Hello.")
        await app.rests()
        await app.until(lambda: json.loads((workspace / "told").read_text() or "{}")["context"]["used"] > 0)
        assert len(count.read_text()) > len(before)


async def test_the_bar_says_that_a_command_failed_until_there_is_a_line(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    command = f"test -e {workspace}/ready && echo my line || exit 3"
    (home / "config.toml").write_text(f"[status_line]\ncommand = {json.dumps(command)}\n")
    llm.script("Hello.")
    async with start(size=(160, 30)) as app:
        await app.sees("status_line.command: exit code 3")
        (workspace / "ready").touch()
        await app.say("hi")
        await app.sees("Hello.", "my line")
        assert "exit code" not in app.text


async def test_a_line_that_takes_too_long_is_left_out(start: Start, home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    command = f"echo $$ > {workspace}/pid; sleep 1000; echo late"
    (home / "config.toml").write_text(f"[status_line]\ncommand = {json.dumps(command)}\n")
    async with start(size=(160, 30)) as app:
        await app.until(lambda: (workspace / "pid").exists() and (workspace / "pid").read_text(), "its start")
        process = int((workspace / "pid").read_text())
        await app.until(lambda: not is_alive(process), "its end")
        await app.sees("status_line.command: took more than 0.3 s")
