"""The choices of an approval: a list that letters, numbers, arrows and the mouse answer."""

from pathlib import Path

import pytest
from asking import appears, armed, bash, write
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from textual import events

from crushpy.tui.widgets import grace_period, prompt

pytestmark = pytest.mark.slow

__all__ = ["start"]


def row_of(app: Driven, words: str) -> int:
    return next(number for number, line in enumerate(app.text.split("\n")) if words in line)


async def test_the_command_comes_first_then_a_sentence_then_the_choices(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(bash("git log --oneline"), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        words = (
            "Run `git log --oneline`?",
            "$ git log --oneline",
            "No rule covers `git log --oneline`",
            "› [y] Yes",
            "[a] Yes, and don't ask again for `git log` in this project",
            "[n] No, and tell the agent what to do",
            "Esc interrupts · m other scopes · ? explains · Tab edits the command",
        )
        rows = [row_of(app, word) for word in words]
        assert rows == sorted(rows), app.text
        assert "[c]" not in app.text
        await app.press("m")
        words = (
            "› [c] In this conversation: bash(git log --oneline)",
            "[f] In this conversation: bash(git log)",
            "[p] In this project: bash(git log)",
            "[g] In all projects: bash(git log)",
            "Esc goes back",
        )
        rows = [row_of(app, word) for word in words]
        assert rows == sorted(rows), app.text


async def test_a_long_choice_goes_on_below_its_words(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("x", "a/folder/with/a/name/that/is/long/and/longer/made.sh"), "Well.")
    async with start(size=(80, 24)) as app:
        await app.say("do it")
        await armed(app)
        await app.press("m")
        row = row_of(app, "[c] In this conversation:")
        first, second = app.text.split("\n")[row : row + 2]
        assert second[: first.index("In")].strip("│ ") == "" and second[first.index("In")] != " "


async def test_the_note_about_an_unknown_command_ends_with_the_next_key_in_a_question(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(bash("git log --oneline"), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.type("/nonsense")
        await app.press("enter")
        await app.sees("There is no command /nonsense")
        await app.type("x")
        await app.until(lambda: app.chat.prompt.draft == "/nonsensex")
        await app.until(lambda: "There is no command" not in app.text, "the note to go")


async def test_a_letter_of_a_choice_that_is_not_shown_is_typed(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("git log --oneline"), "Well.")
    async with start() as app:
        await app.say("do it")
        panel = await armed(app)
        await app.type("c")
        await app.until(lambda: app.chat.prompt.draft == "c")
        assert app.approval is panel


async def test_a_change_is_drawn_as_results_are(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.py").write_text("one = 1\ntwo = 2\n")
    edit = {"file_path": "a.py", "old_string": "two = 2", "new_string": "two = 3"}
    llm.script(Reply(calls=[Call("view", {"file_path": "a.py"})]), Reply(calls=[Call("edit", edit)]), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.sees(
            "1   one = 1", "2 - two = 2", "2 + two = 3", "Edit a.py?", "No rule allows writing: a.py"
        )
        assert "@@" not in app.text and "+++" not in app.text


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("keys", "trace"),
    [
        pytest.param(["m", "1"], "allowed by you for this conversation", id="number"),
        pytest.param(["m", "down", "up", "enter"], "allowed by you for this conversation", id="arrows"),
        pytest.param(["down", "down", "up", "up", "enter"], "allowed once", id="back"),
        pytest.param(["enter"], "allowed once", id="enter"),
        pytest.param(["2"], "allowed by you for this conversation", id="second"),
        pytest.param(["m", "p"], "always allowed by you", id="project"),
    ],
)
async def test_numbers_and_arrows_answer(start: Start, llm: ScriptedLLM, keys: list[str], trace: str) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.press(*keys)
        await app.sees("Written.", " tokens")
        assert trace not in app.text, "only on focus"
        await app.press("tab", "up")
        await app.sees(trace)


async def test_enter_sends_the_draft_if_there_is_one(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(write("echo hi\n"), "Written.", "And that.")
    async with start() as app:
        await app.say("do it")
        panel = await armed(app)
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.type("with a bow")
        await app.until(lambda: app.chat.prompt.draft == "with a bow")
        await armed(app)
        await app.press("enter")
        await app.until(lambda: not app.chat.prompt.draft)
        assert app.approval is panel and not (workspace / "made.sh").exists()
        assert [queued.text for queued in app.conversation.prompts.queue] == ["with a bow"]
        await armed(app)
        await app.press("enter")
        await app.sees("Written.")
        assert (workspace / "made.sh").exists()


async def test_enter_before_typing_has_paused_decides_nothing(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grace_period, "GRACE", 1e9)
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        panel = await appears(app)
        await app.press("enter")
        await app.pilot.pause()
        assert app.approval is panel and not (workspace / "made.sh").exists()


async def test_the_same_key_answers_a_batch_of_like_calls_and_is_not_typed(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [Call("bash", {"command": f"touch {name}"}, f"call_{name}") for name in "abc"]
    llm.script(Reply(calls=calls), "Made.")
    monkeypatch.setattr(prompt, "REPEATED_KEY_S", 60.0)
    async with start() as app:
        await app.say("make them")
        await armed(app)
        assert "1 of 3" in app.text
        monkeypatch.setattr(grace_period, "GRACE", 1e9)  # only keys that count at once can answer now
        await app.press("y", "y", "y")
        while "Made." not in app.text:  # one that came before its question was drawn has no effect
            await app.press("y")
            await app.pilot.pause()
        assert app.chat.prompt.draft == ""
        assert all((workspace / name).exists() for name in "abc")
        # The next question is drawn at once: the focus does not pass through the transcript and its keys.
        assert not app.chat.query("KeyBar")


@pytest.mark.parametrize("second", ["curl https://example.com", "touch /etc/x", "cat $HOME/x"])
async def test_a_call_that_needs_more_than_the_one_before_waits_for_a_pause(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    calls = [Call("bash", {"command": line}, f"call_{at}") for at, line in enumerate(("touch a", second))]
    llm.script(Reply(calls=calls), "Made.")
    async with start() as app:
        await app.say("make them")
        await armed(app)
        assert "[b]" not in app.text
        monkeypatch.setattr(grace_period, "GRACE", 1e9)
        await app.press("y")
        await app.sees("2 of 2")
        panel = await appears(app)
        await app.press("y")
        await app.pilot.pause()
        assert app.approval is panel
        await app.press("escape")


async def test_a_batch_is_answered_with_one_key(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    calls = [Call("write", {"file_path": f"{name}.txt", "content": "x\n"}, f"call_{name}") for name in "abc"]
    llm.script(Reply(calls=calls), "Made.")
    async with start() as app:
        await app.say("make them")
        await armed(app)
        await app.sees("Write a.txt?  1 of 3", "[b] Yes, to all 3: a.txt, b.txt, c.txt")
        await app.press("b")
        await app.sees("Made.")
        assert all((workspace / f"{name}.txt").exists() for name in "abc")


async def test_tab_changes_the_command_which_is_judged_again(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch made"), "Made.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.press("tab")
        await app.sees("Enter checks the changed command again")
        await app.type("-too")
        await app.press("enter")
        await app.sees("Run `touch made-too`?", "○ Run touch made-too")
        assert "allowed once" not in app.text
        await armed(app)
        await app.press("y")
        await app.sees("Made.", "✓ Ran touch made-too")
    assert (workspace / "made-too").exists() and not (workspace / "made").exists()
    assert "The user changed the command before it ran: touch made-too" in str(llm.requests[-1].body)
    assert "A hook changed" not in str(llm.requests[-1].body)


async def test_a_command_typed_quickly_at_a_question_runs(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("git push origin main"), "Done.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        question = app.approval
        for letter in "/status":  # faster than the draft can take it
            app.app.post_message(events.Key(letter, letter))
        app.app.simulate_key("enter")
        await app.sees("Status", "files read")
        await app.press("escape")
        assert app.approval is question and not app.chat.prompt.draft
        await app.press("escape")


async def test_a_question_mark_explains_the_command(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("git push origin main && rm -r build"), "Done.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.sees("with the network")
        await app.press("question_mark")
        await app.sees("`git push` sends commits to ", "another repository (origin, main).")
        await app.sees("`rm` deletes files, folders", "with all they contain (build).", "It asks because")


async def test_an_explanation_names_paths_as_the_title_does(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.press("question_mark")
        await app.sees("Changes ", "It asks because")
        assert str(workspace) not in app.text


async def test_a_changed_command_keeps_its_place_and_an_empty_one_goes_back(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch made"), "Made.")
    async with start() as app:
        await app.say("make it")
        await armed(app)
        await app.press("tab", "ctrl+u", "enter")
        await app.sees("Run `touch made`?", "[y] Yes")
        await armed(app)
        await app.press("tab")
        await app.type("-too")
        await app.press("enter")
        await app.sees("Run `touch made-too`?")
        assert "2 of 2" not in app.text
        await armed(app)
        await app.press("y")
        await app.sees("Made.")
    assert (workspace / "made-too").exists()


async def test_an_explanation_is_in_view_on_a_small_screen(start: Start, llm: ScriptedLLM) -> None:
    llm.script(bash("pytest -q && rm -rf build && git log --oneline"), "Done.")
    async with start(size=(40, 15)) as app:
        await app.say("do it")
        await armed(app)
        await app.press("question_mark")
        await app.sees("Nothing happens before", "you answer.")


@pytest.mark.parametrize("size", [(100, 30), (40, 12)], ids=["listed", "small"])
async def test_a_click_answers(start: Start, llm: ScriptedLLM, size: tuple[int, int]) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start(size=size) as app:
        await app.say("do it")
        await armed(app)
        for key in ("m other", "[c]"):
            await app.sees(key)
            row = row_of(app, key)
            column = app.text.split("\n")[row].index(key) + 1
            await app.pilot.click(offset=(column, row))
        await app.sees("Written.")
        await app.rests()
        assert "write(./made.sh)" in app.conversation.info.grants


async def test_calls_side_by_side_are_counted(start: Start, llm: ScriptedLLM) -> None:
    names = ("passwd", "group", "hosts")
    views = [Call("view", {"file_path": f"/etc/{name}"}, f"call_{name}") for name in names]
    llm.script(Reply(calls=views), "Read.")
    async with start() as app:
        await app.say("read them")
        for number in (1, 2, 3):
            await app.sees(f"?  {number} of 3")
            await armed(app)
            await app.press("y")
        await app.sees("Read.")


async def test_files_that_a_program_changes_in_place_are_named(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "README.md").write_text("a till\n")
    llm.script(bash("echo hi > made.txt; sed -i s/till/cash/ README.md"), "Done.")
    async with start() as app:
        await app.say("change it")
        await armed(app)
        await app.press("question_mark")
        await app.sees("`sed` edits text", "README.md", "goes to made.txt.")
        await app.press("escape", "n", "enter")
        await app.sees("Done.")


@pytest.mark.parametrize("key", ["m", "question_mark", "d", "n"])
async def test_escape_leaves_what_was_opened_and_only_then_interrupts(
    start: Start, llm: ScriptedLLM, key: str
) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        panel = await armed(app)
        await app.press(key)
        await app.sees("Esc goes back")
        await app.press("escape")
        await app.sees("› [y] Yes", "Esc interrupts")
        assert app.approval is panel
        await app.press("escape")
        await app.sees("Interrupted.")


async def test_a_diff_fills_the_screen_with_one_key(start: Start, llm: ScriptedLLM) -> None:
    llm.script(write("\n".join(f"line {number}" for number in range(60))), "Written.")
    async with start(size=(80, 24)) as app:
        await app.say("do it")
        panel = await armed(app)
        before = app.text.count("+ line")
        await app.press("d")
        await app.until(lambda: panel.region.y == 0 and app.text.count("+ line") > before + 4, app.text)
        await app.sees("Write made.sh?", "› [y] Yes", "Esc goes back")
        await app.press("y")
        await app.sees("Written.")


async def test_all_edits_are_allowed_with_one_key(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(write("x"), write("y", "other.sh"), "Written.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.sees("[a] Yes, and all edits in this conversation (Shift+Tab)")
        await app.press("a")
        await app.sees("Written.")
        assert app.mode_shown == "edits"
    assert (workspace / "other.sh").exists()


@pytest.mark.parametrize("size", [(50, 16), (80, 24), (110, 34)])
async def test_choices_fit_and_one_is_marked_without_colours(
    start: Start, llm: ScriptedLLM, size: tuple[int, int]
) -> None:
    llm.script(bash('git add . && git commit -m "two words" && git push'), "Done.")
    async with start(size=size) as app:
        await app.say("do it")
        await armed(app)
        rows = app.text.split("\n")
        assert sum("› [y] Yes" in row for row in rows) == 1
        assert any("[n] No, and tell the agent what to do" in row for row in rows), app.text
        assert any("No rule covers" in row for row in rows) and "[a]" not in app.text
        await app.press("down")
        await app.sees("› [n] No")
