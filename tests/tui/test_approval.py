"""Approvals: all of what is asked for is to be seen, at every size, and nothing is answered by accident."""

from pathlib import Path

import pytest
from driving import Driven, Start, start
from prompt_host import send
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from textual import events

from crushpy.tui.screens.help import HelpScreen
from crushpy.tui.widgets import grace
from crushpy.tui.widgets.approval import ApprovalPanel
from crushpy.tui.widgets.fields import Line

__all__ = ["start"]

FOR_EVER = 3_600.0
SIZES = [(120, 36), (80, 24), (40, 10)]
LONG = "\n".join(f"line {number} of the file" for number in range(1, 401))


def bash(command: str, **more: object) -> Reply:
    return Reply(calls=[Call("bash", {"command": command, **more})])


def write(content: str, name: str = "made.sh") -> Reply:
    return Reply(calls=[Call("write", {"file_path": name, "content": content})])


async def armed(app: Driven) -> ApprovalPanel:
    """Returns once the question can be answered."""
    await app.until(lambda: app.approval is not None and app.approval.has_class(grace.ARMED), "a question")
    await app.pilot.pause()
    assert app.approval is not None
    return app.approval


async def appears(app: Driven) -> ApprovalPanel:
    """Returns once the question is there and has the focus."""
    await app.until(lambda: app.approval is not None and app.approval.has_focus, "the question")
    await app.pilot.pause()
    assert app.approval is not None
    return app.approval


# --- all of it is to be seen -----------------------------------------------------------------------------


async def test_a_command_hides_nothing(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("echo hi \x1b]0;touch PWNED; \x07 echo end # \rtouch THIS", timeout=7), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "echo hi <ESC>]0;touch PWNED; <BEL> echo end # <CR>touch THIS" in app.text
        assert "It holds 3 hidden characters, shown as <ESC>, <BEL>, <CR>." in app.text
        assert "timeout: 7" in app.text, "the other arguments count too"


async def test_a_change_hides_nothing(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("echo ok\n\x1b]0; ; touch PWNED ; \x07\nnew\u202ename\n"), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        assert "+<ESC>]0; ; touch PWNED ; <BEL>" in app.text
        assert "+new<U+202E>name" in app.text
        assert "It holds 3 hidden characters, shown as <ESC>, <BEL>, <U+202E>." in app.text


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
    monkeypatch.setattr(grace, "GRACE", FOR_EVER)
    llm.script(Stall(bash("touch made"), after=0), "Made it.")
    async with start() as app:
        await app.say("make it")
        await llm.wait_requests(1)
        await app.type("look at the ")
        await app.until(lambda: app.chat.prompt.draft == "look at the ")
        llm.release()
        panel = await appears(app)
        await app.type("classesx")
        await app.press("backspace", "delete", "enter", "ctrl+j")
        await app.type("and 1234")
        await send(app.pilot, events.Paste(", many\nlines"))
        await app.until(lambda: app.chat.prompt.draft == "look at the classes\nand 1234, many\nlines")
        assert app.approval is panel and not panel.has_class("denying")
        assert "[y] once" not in app.text
        assert grace.ARMED not in panel.classes
        assert not (workspace / "made").exists()
        monkeypatch.setattr(grace, "GRACE", 0.01)
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
        monkeypatch.setattr(grace, "GRACE", FOR_EVER)
        await app.type("please")
        await app.until(lambda: app.chat.prompt.draft == "please")
        assert app.approval is panel
        assert not panel.has_class(grace.ARMED)
        assert "[y] once" not in app.text
        assert not (workspace / "made").exists()


async def test_a_key_pressed_before_keys_counted_does_not_count_however_late_it_is_handled(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await appears(app)
        waiting = events.Key("y", "y")
        panel = await armed(app)
        await send(app.pilot, waiting)
        await app.until(lambda: app.chat.prompt.draft == "y")
        assert app.approval is panel


async def test_the_wait_begins_when_the_question_comes_into_view(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace, "GRACE", 0.01)
    llm.script(Stall(bash("touch made"), after=0), "Made it.")
    async with start() as app:
        await app.say("make it")
        await llm.wait_requests(1)
        await app.press("f1")
        await app.shows(HelpScreen)
        llm.release()
        await app.until(lambda: app.approval is not None, "the question")
        await app.until(lambda: "The agent waits for your answer" in app.notices, "a notice")
        assert not app.approval.has_class(grace.ARMED), "nobody has seen it"
        monkeypatch.setattr(grace, "GRACE", FOR_EVER)
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.until(lambda: not app.notices, "the notice to go")
        assert not app.approval.has_class(grace.ARMED)
        await app.type("ya")
        await app.until(lambda: app.chat.prompt.draft == "ya")
        monkeypatch.setattr(grace, "GRACE", 0.01)
        await app.press("backspace", "backspace")
        panel = await armed(app)
        monkeypatch.setattr(grace, "GRACE", FOR_EVER)
        await app.press("f1")
        await app.shows(HelpScreen)
        assert not panel.has_class(grace.ARMED)
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.type("y")
        await app.until(lambda: app.chat.prompt.draft == "y")
    assert not (workspace / "made").exists()


async def test_a_list_for_what_is_typed_meanwhile_does_not_cover_the_question(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        monkeypatch.setattr(grace, "GRACE", 0.01)
        await app.press("slash")
        await app.type("hel")
        await app.until(lambda: app.chat.prompt.draft == "/hel")
        await armed(app)
        assert "[y] once" in app.text
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
        monkeypatch.setattr(grace, "GRACE", FOR_EVER)
        await app.say("make it")
        await appears(app)
        await app.press("escape")
        await app.until(lambda: app.approval is None, "the question to go")


# --- what was said is seen afterwards --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "trace"),
    [
        ("y", "bash touch made  allowed once"),
        ("c", "bash touch made  allowed: this conversation"),
        ("a", "bash touch made  always: bash(touch made)"),
        ("n", "bash touch made  denied"),
        ("nuse mkdir", "bash touch made  denied: use mkdir"),
    ],
)
async def test_the_flow_tells_what_was_granted_or_denied(
    start: Start, llm: ScriptedLLM, keys: str, trace: str
) -> None:
    llm.script(bash("touch made"), "I see.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.type(keys[0])
        if keys[0] == "n":
            await app.sees("what the agent should do instead")
            await app.type(keys[1:])
            await app.press("enter")
        await app.sees("I see.")
        await app.rests()
        (line,) = [line for line in app.text.split("\n") if "bash touch made" in line]
        assert line.strip(" ▸✓⊘") == trace


async def test_the_flow_tells_what_was_granted_to_a_task(start: Start, llm: ScriptedLLM) -> None:
    errand = Reply(calls=[Call("task", {"prompt": "make a file"})])
    llm.script(errand, bash("touch made"), "Made by the task.", "The task is done.")
    async with start() as app:
        await app.say("have it made")
        await armed(app)
        await app.press("y")
        await app.sees("The task is done.")
        assert "For a task, allowed once: bash touch made" in app.text


# --- at every size ---------------------------------------------------------------------------------------


def inside(app: Driven) -> list[str]:
    """The lines of the screen that the panel covers."""
    assert app.approval is not None
    region = app.approval.region
    assert region.bottom <= app.app.size.height
    return app.text.split("\n")[region.y : region.bottom]


@pytest.mark.parametrize("size", SIZES)
async def test_rule_and_keys_stay_in_view_while_a_long_change_scrolls(
    start: Start, llm: ScriptedLLM, size: tuple[int, int]
) -> None:
    llm.script(write(LONG), "Written.")
    async with start(size=size) as app:
        await app.say("write it")
        await armed(app)

        def stays() -> None:
            text = "\n".join(inside(app))
            words = ("Allow write?", "always would store: write(./made.sh)", "[y] once", "[n] deny", "Esc ")
            for one in words:
                assert one in text
            assert "test-model" in app.text.split("\n")[-1]

        stays()
        assert "+line 1 of" in app.text
        for key, there in (("end", False), ("home", True), ("pagedown", False), ("pageup", True)):
            await app.press(key)
            await app.until(lambda there=there: ("+line 1 of" in app.text) == there, key)
            stays()
        await app.press("end", *["up"] * 3)
        await app.sees("+line 39")
        stays()
        await app.press("home", *["down"] * 4)
        await app.sees("+line 2 of")
        await app.sees_no("@@")
        stays()
        body = app.approval.query_one("#body")
        before = body.scroll_y
        await app.pilot._post_mouse_events([events.MouseScrollDown], widget=body)
        await app.until(lambda: body.scroll_y > before, "the wheel to scroll")
        stays()
        await app.press("n")
        await app.sees("what the agent should do instead")
        assert any("what the agent should do instead" in line for line in inside(app))
        await app.type("no, not this")
        await app.sees("no, not this")
        assert any("no, not this" in line for line in inside(app))
        await app.press("enter")
        await app.sees("Written.")


async def test_a_small_question_takes_no_more_room_than_it_needs(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start(size=(120, 36)) as app:
        await app.say("make it")
        panel = await armed(app)
        assert panel.outer_size.height == 6, app.text  # frame, head, command, rule, keys


async def test_on_the_smallest_screen_the_command_and_the_keys_are_there(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch made && echo a rather long command"), "Made it.", bash("touch \x1b[8mno"), "Ok.")
    async with start(size=(20, 6)) as app:
        await app.say("go")
        await armed(app)
        text = "\n".join(inside(app))
        assert "Allow bash?" in text
        assert "touch made" in text
        assert "[y] [n]" in text
        await app.press("y")
        await app.sees("Made it.")
        assert (workspace / "made").exists()
        await app.say("go")
        await armed(app)
        assert "1 hidden" in app.text
        assert "touch <ESC>[8mno" in app.text
        await app.press("n")
        await app.type("nope")
        await app.sees("nope")
        await app.press("enter")
        await app.sees("Ok.")
    assert "denied this call. nope" in str(llm.requests[-1].body)


async def test_one_question_after_the_other_has_the_whole_small_screen(
    start: Start, llm: ScriptedLLM
) -> None:
    both = [Call("bash", {"command": f"touch made{number}"}, f"call_{number}") for number in (1, 2)]
    llm.script(Reply(calls=both), "Both made.")
    async with start(size=(40, 10)) as app:
        await app.say("make both")
        await armed(app)
        app.chat.prompt.draft = "a draft\nof\nthree lines"
        await app.sees("touch made1", "always would store: bash(touch made1)", "[n] deny")
        await app.press("y")
        await app.sees("touch made2", "always would store: bash(touch made2)", "[n] deny")
        await armed(app)
        await app.pilot.pause()
        assert app.chat.has_class("-cramped")
        assert "of" not in app.text.split("\n")[-3]
        await app.press("y")
        await app.sees("Both made.")
        await app.until(lambda: not app.chat.has_class("-cramped"))


async def test_what_is_cut_short_stands_in_full_below_the_command(start: Start, llm: ScriptedLLM) -> None:
    name = "a/rather/long/name/" * 8 + "end.txt"
    llm.script(write("text", name), "Written.")
    async with start(size=(40, 10)) as app:
        await app.say("write it")
        panel = await armed(app)
        assert "always would store: write(a/rather/" in app.text, app.text
        await app.press("end")
        assert panel.query_one("#body").scroll_y > 0
        await app.sees("end.txt)")


async def test_the_question_fits_anew_when_the_terminal_changes_and_the_draft_grows(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace, "GRACE", 0.01)
    llm.script(write(LONG), "Written.")
    async with start(size=(80, 24)) as app:
        await app.say("write it")
        await armed(app)
        app.chat.prompt.draft = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten"
        for size in ((40, 10), (100, 30), (80, 20), (20, 6), (80, 24)):
            await app.pilot.resize_terminal(*size)
            await app.until(lambda size=size: app.app.size == size)
            await armed(app)
            await app.sees("[y]")
            text = "\n".join(inside(app))
            assert "[y]" in text and "[n]" in text, app.text
            assert "+line 1 of" in text or "+++" in text, app.text
            assert ("always would store" in text) == (size != (20, 6)), app.text
        await app.press("y")
        await app.sees("Written.")
        assert not app.chat.has_class("-cramped")


async def test_the_words_of_a_denial_are_taken_back_with_escape(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start() as app:
        await app.say("make it")
        panel = await armed(app)
        await app.press("n")
        await app.type("not so")
        await app.sees("not so", "Esc goes back")
        await app.press("escape")
        await app.sees("[y] once")
        assert panel.query_one(Line).value == ""
        await app.press("y")
        await app.sees("Made it.")
