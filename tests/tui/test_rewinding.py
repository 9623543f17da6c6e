"""`/undo`, `/redo` and `/rewind` in the app: seen first, then done, and the prompt comes back."""

from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.tui.screens import chat_host
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.rewind import RestorationScreen, RewindScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]


def writes(name: str, content: str) -> Reply:
    return Reply(calls=[Call("write", {"file_path": name, "content": content})])


async def two_turns(app: Driven, llm: ScriptedLLM) -> None:
    """The first makes a.txt and b.txt, the second c.txt by a command."""
    llm.script(writes("a.txt", "a\n"), writes("b.txt", "b\n"), "Two files.")
    await app.say("make two")
    await app.sees("Two files.")
    llm.script(Reply(calls=[Call("bash", {"command": "echo c > c.txt"})]), "One file.")
    await app.say("make another")
    await app.sees("One file.")
    await app.rests()


def there(folder: Path) -> str:
    return "".join(sorted(file.stem for file in folder.glob("*.txt")))


async def test_undo_and_redo_go_turn_by_turn(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    async with start(yolo=True) as app:
        await two_turns(app, llm)
        await app.say("/undo")
        await app.shows(RestorationScreen)
        await app.sees("c.txt", "- c", "not covered")
        assert there(workspace) == "abc"
        await app.press("enter")
        await app.sees("1 file restored.")
        assert there(workspace) == "ab"
        await app.say("/undo")
        await app.shows(RestorationScreen)
        await app.sees("a.txt", "b.txt")
        await app.press("space", "enter")
        await app.until(lambda: there(workspace) == "a", "b.txt to go")
        await app.say("/redo all")
        await app.until(lambda: there(workspace) == "ab", "b.txt to come back")
        await app.sees("1 file changed again.")
        await app.say("/redo c.txt")
        await app.until(lambda: there(workspace) == "abc", "c.txt to come back")
        await app.say("/redo")
        await app.sees("There is nothing to redo")
        llm.script("I see.")
        await app.say("go on")
        await app.sees("I see.")
        sent = str(llm.requests[-1].body["messages"])
        assert "restored these files" in sent


async def test_rewind_shows_the_prompts_and_brings_one_back(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_host, "REWIND_WINDOW_S", 60.0)
    async with start(yolo=True) as app:
        await two_turns(app, llm)
        source = app.conversation.info.id
        (workspace / "b.txt").write_text("mine now\n")
        await app.press("escape", "escape")
        await app.shows(RewindScreen)
        await app.sees("make another", "c.txt +1 -0", "make two", "a.txt +1 -0  b.txt +1 -0")
        await app.press("down", "enter")
        await app.shows(ChooseScreen)
        await app.press("enter")
        await app.shows(RestorationScreen)
        await app.sees("skipped", "b.txt")
        await app.press("enter")
        await app.until(lambda: app.chat.prompt.draft == "make two", "the prompt")
        assert there(workspace) == "b" and (workspace / "b.txt").read_text() == "mine now\n"
        await app.until(lambda: app.conversation.info.parent_id == source, "the fork")
        assert app.conversation.info.kind == "fork" and app.conversation.history == ()


async def test_rewind_restores_conversation_or_files_alone(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(yolo=True) as app:
        await two_turns(app, llm)
        source = app.conversation.info.id
        await app.say("/rewind")
        await app.shows(RewindScreen)
        await app.press("enter")
        await app.shows(ChooseScreen)
        await app.type("files only")
        await app.press("enter")
        await app.shows(RestorationScreen)
        await app.press("enter")
        await app.until(lambda: there(workspace) == "ab", "c.txt to go")
        assert app.conversation.info.id == source and app.chat.prompt.draft == ""
        await app.say("/rewind")
        await app.shows(RewindScreen)
        await app.press("enter")
        await app.shows(ChooseScreen)
        await app.type("conversation only")
        await app.press("enter")
        await app.until(lambda: app.chat.prompt.draft == "make another", "the prompt")
        assert app.conversation.info.id != source and there(workspace) == "ab"


async def test_undo_right_after_a_compaction_says_which_it_is(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        llm.script("The answer is 42.")
        await app.say("what is it?")
        await app.sees("The answer is 42.")
        await app.rests()
        await app.say("/handoff go on from here")
        await app.sees("Context compacted")
        await app.say("/undo")
        await app.sees("/undo-compaction", "no turn changed a file.")


async def test_the_list_names_files_as_they_are_named_here_and_the_key_that_takes_one(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start(yolo=True) as app:
        await two_turns(app, llm)
        await app.say("/rewind")
        await app.shows(RewindScreen)
        await app.sees("Changed since: c.txt", "Enter Go back to before it")
        assert str(workspace) not in app.text


async def test_undo_is_refused_before_the_first_prompt(start: Start) -> None:
    async with start() as app:
        for command, told in (
            ("/undo", "There is nothing to undo"),
            ("/redo", "There is nothing to redo."),
            ("/undo-compaction", "There is no compaction to undo yet."),
        ):
            await app.say(command)
            await app.sees(told)


@pytest.mark.parametrize("command", ["/compact", "/handoff this is all"])
async def test_compaction_before_the_first_prompt_says_that_there_is_nothing(
    start: Start, command: str
) -> None:
    async with start() as app:
        await app.say(command)
        await app.sees("There is nothing to compact yet.")


async def test_a_binary_file_is_named_as_such_beside_the_prompt(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": r"printf '\000\001' > data.bin"})]), "Made.")
    async with start(yolo=True) as app:
        await app.say("make it")
        await app.sees("Made.")
        await app.rests()
        await app.press("escape", "escape")
        await app.sees("Rewind: go back", "data.bin binary")
