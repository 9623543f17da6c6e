"""The choices of an approval: a list that letters, numbers, arrows and the mouse answer."""

from pathlib import Path

import pytest
from asking import armed, bash, write
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.tui.widgets import grace_period

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
            "Allow bash?",
            "$ git log --oneline",
            "Runs git · no rule covers `git log --oneline`",
            "[y] once",
            "[c] this conversation: this command",
            "[f] this conversation: commands like git log",
            "[a] always: bash(git log)",
            "[n] deny",
        )
        rows = [row_of(app, one) for one in words]
        assert rows == sorted(rows), app.text


async def test_a_change_is_drawn_as_results_are(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.py").write_text("one = 1\ntwo = 2\n")
    edit = {"file_path": "a.py", "old_string": "two = 2", "new_string": "two = 3"}
    llm.script(Reply(calls=[Call("view", {"file_path": "a.py"})]), Reply(calls=[Call("edit", edit)]), "Well.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.sees("1   one = 1", "2 - two = 2", "2 + two = 3", "Writes a.py · no rule allows it")
        assert "@@" not in app.text and "+++" not in app.text


@pytest.mark.parametrize(
    ("keys", "trace"),
    [
        pytest.param(["2"], "allowed: this file", id="number"),
        pytest.param(["down", "down", "down", "enter"], "allowed: all edits in this project", id="arrows"),
        pytest.param(["down", "down", "up", "enter"], "allowed once", id="back"),
        pytest.param(["up", "up", "enter"], "always: write(./made.sh)", id="from below"),
    ],
)
async def test_numbers_and_arrows_answer(start: Start, llm: ScriptedLLM, keys: list[str], trace: str) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        await armed(app)
        await app.press(*keys)
        await app.sees("Written.", trace)


async def test_enter_decides_nothing_before_a_choice_is_pointed_at(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start() as app:
        await app.say("do it")
        panel = await armed(app)
        await app.press("enter")
        await app.pilot.pause()
        assert app.approval is panel
        await app.press("down")
        await app.sees("› [y] once")
        monkeypatch.setattr(grace_period, "GRACE", 0.01)
        await app.type("w")  # what is typed on is meant for the draft
        await armed(app)
        await app.press("enter")
        await app.pilot.pause()
        assert app.approval is panel and not (workspace / "made.sh").exists()
        assert "›" not in app.text.split("Written")[0].split("[y]")[1]


@pytest.mark.parametrize("size", [(100, 30), (40, 12)], ids=["listed", "small"])
async def test_a_click_answers(start: Start, llm: ScriptedLLM, size: tuple[int, int]) -> None:
    llm.script(write("echo hi\n"), "Written.")
    async with start(size=size) as app:
        await app.say("do it")
        await armed(app)
        row = row_of(app, "[c]")
        column = app.text.split("\n")[row].index("[c]") + 1
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
            await app.sees(f"Allow view?  {number} of 3")
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
        assert "Runs echo, sed; writes README.md, made.txt" in app.text
        await app.press("n", "enter")
        await app.sees("Done.")
