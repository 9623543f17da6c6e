"""Approvals: all of what is asked for is to be seen, and nothing is answered by accident."""

import json
import re
from pathlib import Path

import pytest
from asking import appears, armed, bash, write
from driving import Start, start
from prompt_host import send
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from textual import events

from crushpy.tui.screens.help import HelpScreen
from crushpy.tui.widgets import grace_period
from crushpy.tui.widgets.fields import LineField

pytestmark = pytest.mark.slow

__all__ = ["start"]

FOR_EVER = 3_600.0


# --- all of it is to be seen -----------------------------------------------------------------------------


async def test_a_command_hides_nothing(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("echo hi \x1b]0;touch PWNED; \x07 echo end # \rtouch THIS", timeout=7), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "echo hi <ESC>]0;touch PWNED; <BEL> echo end # <CR>touch THIS" in app.text
        assert "It contains 3 hidden characters, shown as <ESC>, <BEL>, <CR>." in app.text
        assert "timeout: 7" in app.text, "the other arguments count too"


async def test_a_change_hides_nothing(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("echo ok\n\x1b]0; ; touch PWNED ; \x07\nnew\u202ename\n"), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "+<ESC>]0; ; touch PWNED ; <BEL>" in app.text
        assert "+new<U+202E>name" in app.text
        assert "It contains 3 hidden characters, shown as <ESC>, <BEL>, <U+202E>." in app.text


async def test_returns_that_a_diff_leaves_out_are_told(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("echo \\\r\n touch PWNED\n"), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "The diff leaves out 1 carriage return." in app.text


async def test_an_empty_file_is_told_by_its_arguments(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write(""), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "file_path: made.sh" in app.text
        assert "hidden" not in app.text


# --- nothing is answered by accident ---------------------------------------------------------------------


async def test_typing_on_decides_nothing_and_every_letter_is_in_the_draft(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
    llm.script(Stall(bash("touch made"), after=0), "Made it.")
    async with start() as app:
        await app.say("make it")
        await llm.wait_requests(1)
        await app.type("look at the ")
        await app.until(lambda: app.chat.prompt.draft == "look at the ")
        llm.release()
        panel = await appears(app)
        await app.type("classesx")
        await app.press("backspace", "delete", "ctrl+j")
        await app.type("and 1234")
        await send(app.pilot, events.Paste(", many\nlines"))
        await app.until(lambda: app.chat.prompt.draft == "look at the classes\nand 1234, many\nlines")
        assert app.approval is panel and not panel.has_class("-writing")
        assert "[y] Yes" not in app.text
        assert grace_period.ARMED not in panel.classes
        assert not (workspace / "made").exists()
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.type("!")  # the last key, with a pause behind it
        await armed(app)
        await app.press("y")
        await app.sees("Made it.")
        assert (workspace / "made").exists()
        assert app.chat.prompt.draft == "look at the classes\nand 1234, many\nlines!"
        assert app.chat.prompt.has_focus
    assert len(llm.requests) == 2, "nothing else was sent"


async def test_a_key_that_is_no_answer_is_typing_and_the_wait_begins_anew(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        panel = await armed(app)
        monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
        await app.type("please")
        await app.until(lambda: app.chat.prompt.draft == "please")
        assert app.approval is panel
        assert not panel.has_class(grace_period.ARMED)
        assert "[y] Yes" not in app.text
        assert not (workspace / "made").exists()


async def test_a_key_pressed_before_keys_counted_does_not_count_however_late_it_is_handled(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await appears(app)
        waiting = events.Key("y", "y")
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.type("x")
        panel = await armed(app)
        await send(app.pilot, waiting)
        await app.until(lambda: app.chat.prompt.draft == "xy")
        assert app.approval is panel


async def test_the_wait_begins_when_the_question_comes_into_view(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_period, "GRACE", 0.01)
    llm.script(Stall(bash("touch made"), after=0), "Made it.")
    async with start() as app:
        await app.say("make it")
        await llm.wait_requests(1)
        await app.press("f1")
        await app.shows(HelpScreen)
        llm.release()
        await app.until(lambda: app.approval is not None, "the question")
        await app.until(lambda: "The agent is waiting for your answer" in app.notices, "a notice")
        assert not app.approval.has_class(grace_period.ARMED), "nobody has seen it"
        monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.until(lambda: not app.notices, "the notice to go")
        assert not app.approval.has_class(grace_period.ARMED)
        await app.type("ya")
        await app.until(lambda: app.chat.prompt.draft == "ya")
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.press("backspace", "backspace")
        panel = await armed(app)
        monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
        await app.press("f1")
        await app.shows(HelpScreen)
        await app.press("escape")
        await app.shows(type(app.chat))
        assert app.approval is panel and not (workspace / "made").exists()
        await app.press("y")
        await app.sees("Made it.")
    assert (workspace / "made").exists()


async def test_keys_on_an_open_page_never_reach_the_draft(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start(size=(50, 16)) as app:
        await app.say("make it")
        await armed(app)
        await app.type("xo")
        await app.until(lambda: app.chat.prompt.draft == "xo")
        panel = await armed(app)
        await app.press("m")
        await app.sees("Esc goes back")
        await app.type("xyz")
        await send(app.pilot, events.Paste(" pasted"))
        await app.press("backspace", "ctrl+j")
        assert app.approval is panel and panel.has_class(grace_period.ARMED)
        assert app.chat.prompt.draft == "xo"
        await app.press("enter")
        await app.sees("Made it.")
        assert app.chat.prompt.draft == "xo"
        assert app.conversation.info.grants, "the marked scope was chosen"


async def test_a_list_for_what_is_typed_meanwhile_does_not_cover_the_question(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.press("slash")
        await app.type("hel")
        await app.until(lambda: app.chat.prompt.draft == "/hel")
        await armed(app)
        assert "[y] Yes" in app.text
        await app.press("y")
        await app.sees("Made it.")
        await app.until(lambda: app.chat.prompt.has_focus)
        await app.sees("› /help")


async def test_escape_interrupts_at_once_and_the_panel_says_so(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(bash("touch made"), bash("touch made"))
    async with start() as app:
        await app.say("make it")
        await armed(app)
        assert "Esc interrupts" in app.text
        await app.press("escape")
        await app.sees("Interrupted.")
        monkeypatch.setattr(grace_period, "GRACE", FOR_EVER)
        await app.say("make it")
        await appears(app)
        await app.press("escape")
        await app.until(lambda: app.approval is None, "the question to go")


async def test_a_question_that_was_ended_by_escape_is_in_the_audit(
    start: Start, llm: ScriptedLLM, cli: Cli
) -> None:
    llm.script(bash("touch made"))
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.press("escape")
        await app.sees("Interrupted.")
        await app.rests()
    (record,) = json.loads(cli("audit", "show", "--json").stdout)
    assert (record["verdict"], record["by"], record["answer"]) == ("denied", "user", "ended by Esc")
    assert record["touches"][0]["value"] == "touch made"
    assert "the question was ended by Esc" in cli("audit", "show").stdout


# --- what was said is seen afterwards --------------------------------------------------------------------


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("keys", "trace", "at_cursor"),
    [
        ("y", "Ran touch made", "allowed once by you, "),
        ("mc", "Ran touch made", "allowed by you for this conversation: `touch made`, "),
        ("a", "Ran touch made", "always allowed by you: `touch made` in this project, "),
        ("mg", "Ran touch made", "always allowed by you: `touch made` in all projects, "),
        ("n", "Run touch made · denied", "denied by you, "),
        ("nuse mkdir", "Run touch made · denied: use mkdir", "denied by you, "),
    ],
)
async def test_the_flow_tells_what_was_granted_or_denied(
    start: Start, llm: ScriptedLLM, keys: str, trace: str, at_cursor: str
) -> None:
    llm.script(bash("touch made"), "I see.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.type(keys[0] if keys[0] == "n" else keys)
        if keys[0] == "n":
            await app.sees("what the agent should do instead")
            await app.type(keys[1:])
            await app.press("enter")
        await app.sees("I see.")
        await app.rests()
        (line,) = [line for line in app.text.split("\n") if "n touch made" in line]
        assert re.sub(r" · [0-9.]+ s$", "", line.strip(" ▸✓⊘")) == trace
        assert at_cursor not in app.text
        await app.press("tab", "up")
        await app.sees(at_cursor)


async def test_the_flow_tells_what_was_granted_to_a_task(start: Start, llm: ScriptedLLM) -> None:
    errand = Reply(calls=[Call("task", {"prompt": "make a file"})])
    llm.script(errand, bash("touch made"), "Made by the task.", "The task is done.")
    async with start() as app:
        await app.say("have it made")
        await armed(app)
        await app.press("y")
        await app.sees("The task is done.")
        assert "For a task, allowed once: Run touch made" in app.text


async def test_the_words_of_a_denial_are_taken_back_with_escape(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        panel = await armed(app)
        await app.press("n")
        await app.type("not so")
        await app.sees("not so", "Esc goes back")
        await app.press("escape")
        await app.sees("[y] Yes")
        assert panel.query_one(LineField).value == ""
        await app.press("y")
        await app.sees("Made it.")


async def test_a_change_that_does_not_fit_is_not_asked_for(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.py").write_text("one\n")
    edit = {"file_path": "a.py", "old_string": "two", "new_string": "three"}
    unread = {"file_path": "b.py", "old_string": "two", "new_string": "three"}
    (workspace / "b.py").write_text("one\n")
    llm.script(
        Reply(calls=[Call("view", {"file_path": "a.py"})]),
        Reply(calls=[Call("edit", edit)]),
        Reply(calls=[Call("edit", unread)]),
        "Well.",
    )
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "b.py" in app.text, "a file that was not read says nothing of itself without an answer"
        assert "old_string" in json.dumps(llm.requests[2].body["messages"][-1])
        await app.press("y")
        await app.sees("Well.")


async def test_the_transcript_keeps_its_width_under_a_question(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("echo hi > x"), "Well.")
    async with start(size=(100, 30)) as app:
        await app.say("do it")
        await armed(app)
        assert app.chat.transcript.size.width == 100
