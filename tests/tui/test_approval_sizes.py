"""Approvals at every size: the rule and the keys stay in view, and what is asked for scrolls."""

import pytest
from asking import armed, bash, write
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from textual import events

from crushpy.tui.widgets import grace_period

pytestmark = pytest.mark.slow

__all__ = ["start"]

SIZES = [(120, 36), (80, 24), (40, 10)]
LONG = "\n".join(f"line {number} of the file" for number in range(1, 401))


def inside(app: Driven) -> list[str]:
    """The lines of the screen that the panel covers."""
    assert app.approval is not None
    region = app.approval.region
    assert region.bottom <= app.app.size.height
    return app.text.split("\n")[region.y : region.bottom]


@pytest.mark.sampled(every=2)
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
            words = ("Write made.sh?", "No rule allows writing", "[y] Yes", "[n] No", "Esc ")
            for word in words:
                assert word in text
            assert "test-model" in app.text.split("\n")[-1]

        stays()
        assert "+ line 1 of" in app.text
        for key, there in (("end", False), ("home", True), ("pagedown", False), ("pageup", True)):
            await app.press(key)
            await app.until(lambda there=there: ("+ line 1 of" in app.text) == there, key)
            stays()
        await app.press("end", *["shift+up"] * 3)
        await app.sees("+ line 39")
        stays()
        await app.press("home", *["shift+down"] * 1)
        await app.sees("+ line 2 of")
        await app.sees_no("+ line 1 of")
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


@pytest.mark.parametrize("size", [(60, 20), (60, 22), (80, 24)])
async def test_choices_that_wrap_leave_the_command_in_view(
    start: Start, llm: ScriptedLLM, size: tuple[int, int]
) -> None:
    line = "curl https://example.com/a && wget https://example.org/b && git push"
    llm.script(bash(line), "Done.")
    async with start(size=size) as app:
        await app.say("push it")
        await armed(app)
        assert any(shown.startswith(f" │ $ {line[:40]}") for shown in inside(app))
        await app.press("escape")


async def test_a_small_question_takes_no_more_room_than_it_needs(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("touch made"), "Made it.")
    async with start(size=(120, 36)) as app:
        await app.say("make it")
        panel = await armed(app)
        assert panel.outer_size.height == 8, app.text  # frame, command, reason, choices, keys


async def test_questions_use_a_small_screen_one_after_the_other(start: Start, llm: ScriptedLLM) -> None:
    both = [Call("bash", {"command": f"touch made{number}"}, f"call_{number}") for number in (1, 2)]
    llm.script(Reply(calls=both), "Both made.")
    async with start(size=(40, 10)) as app:
        await app.say("make both")
        await armed(app)
        app.chat.prompt.draft = "a draft\nof\nthree lines"
        await app.sees("touch made1", "again for `tou…", "[n] No")
        await app.press("y")
        await app.sees("touch made2", "again for `tou…", "[n] No")
        await armed(app)
        await app.pilot.pause()
        assert app.chat.has_class("-cramped")
        assert "of" not in app.text.split("\n")[-3]
        await app.press("y")
        await app.sees("Both made.")
        await app.until(lambda: not app.chat.has_class("-cramped"))


async def test_shortened_title_is_shown_in_full_below(start: Start, llm: ScriptedLLM) -> None:
    name = "a/rather/long/name/" * 8 + "end.txt"
    llm.script(write("text", name), "Written.")
    async with start(size=(40, 10)) as app:
        await app.say("write it")
        panel = await armed(app)
        assert "Write a/rather/" in app.text, app.text
        await app.press("end")
        assert panel.query_one("#body").scroll_y > 0
        await app.sees("(Shift+Tab)")


async def test_the_question_fits_anew_when_the_terminal_changes_and_the_draft_grows(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_period, "GRACE", 0.01)
    llm.script(write(LONG), "Written.")
    async with start(size=(80, 24)) as app:
        await app.say("write it")
        await armed(app)
        app.chat.prompt.draft = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten"
        for size in ((40, 10), (100, 30), (80, 20), (80, 24)):
            await app.pilot.resize_terminal(*size)
            await app.until(lambda size=size: app.app.size == size)
            await armed(app)
            await app.sees("[y]")
            text = "\n".join(inside(app))
            assert "[y]" in text and "[n]" in text, app.text
            assert "+ line 1 of" in text, app.text
            assert "all edits in this conv" in text, app.text
        await app.press("y")
        await app.sees("Written.")
        assert not app.chat.has_class("-cramped")


async def test_choices_leave_room_for_the_question(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("text"), "Written.")
    async with start(size=(60, 20)) as app:
        await app.say("write it")
        await armed(app)
        await app.press("m")
        await app.sees("[g]")
        for words in ("Write made.sh?", "+ text", "[c] In", "[p] In"):
            assert words in app.text, app.text


async def test_choices_are_sentences_at_80x24(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("text", "some/folder/file.txt"), "Written.")
    async with start(size=(80, 24)) as app:
        await app.say("write it")
        await armed(app)
        await app.press("m")
        await app.sees("[c] In this conversation: write(some/folder/file.txt)")
        await app.sees("[g] In all projects: write(some/folder/file.txt)", "+ text", "Esc goes back")


async def test_a_long_title_keeps_the_name_of_the_file(start: Start, llm: ScriptedLLM) -> None:
    name = "日本/a/rather/long/name/" * 8 + "end.txt"
    llm.script(write("text", name), "Written.")
    async with start(size=(80, 24)) as app:
        await app.say("write it")
        await armed(app)
        for width in (80, 40):
            await app.pilot.resize_terminal(width, 24)
            await app.until(lambda: "end.txt?" in app.text, app.text)
            assert "Write 日本/" in app.text


async def test_a_long_command_leaves_the_sentence_of_the_title(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash(f"pip install {'package ' * 20}"), "Done.")
    async with start(size=(80, 24)) as app:
        await app.say("install it")
        await armed(app)
        assert "Run `pip install package package pa…` with the network" in app.text, app.text
        await app.press("escape")
