"""Commands that could cost the user something: an export over a file, another conversation in mid-work."""

import os
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.core.messages import Usage
from crushpy.tui.screens.choose import ChooseScreen
from crushpy.tui.screens.overlay import PanelScreen
from crushpy.tui.screens.sessions import SessionsScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]

HALF = Stall(Reply("Half an answer and more", chunk=4), after=3)


async def command(app: Driven, line: str) -> None:
    app.chat.prompt.draft = line
    app.chat.prompt.action_submit()
    await app.pilot.pause()


async def says(app: Driven, words: str) -> None:
    """Returns once these words are told, however they are broken into lines."""
    await app.until(lambda: words in " ".join(app.text.split()), repr(words))


async def talked(app: Driven) -> None:
    await app.say("hello")
    await app.sees("Hi.")
    await app.rests()


# --- export ----------------------------------------------------------------------------------------------


async def test_an_export_does_not_replace_a_file_unless_told_to(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.")
    readme = workspace / "README.md"
    readme.write_text("mine")
    async with start(size=(140, 30)) as app:
        await talked(app)
        await command(app, "/export README.md")
        await app.shows(ChooseScreen)
        await app.sees("README.md already exists", "Keep it", "Replace it")
        await app.press("enter")
        await says(app, "is unchanged")
        assert readme.read_text() == "mine"
        await command(app, "/export README.md")
        await app.shows(ChooseScreen)
        await app.press("down", "enter")
        await says(app, "messages exported to")
        assert "Hi." in readme.read_text()


async def test_escape_at_that_question_keeps_the_file(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.")
    (workspace / "notes.md").write_text("mine")
    async with start() as app:
        await talked(app)
        await command(app, "/export notes.md")
        await app.shows(ChooseScreen)
        await app.press("escape")
        await says(app, "is unchanged")
    assert (workspace / "notes.md").read_text() == "mine"


async def test_the_export_with_the_usual_name_is_written_anew(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.", "Again.")
    async with start() as app:
        await talked(app)
        for keys, said in (((), "2 messages exported to"), (("down",), "2 messages exported to")):
            await command(app, "/export")
            await app.shows(ChooseScreen)
            await app.press(*keys, "enter")
            await says(app, said)
        (file,) = Path.home().glob("crushpy-*.md")
        assert [entry.name for entry in workspace.iterdir()] == [file.name], "only where the user chose it"
        await app.say("more")
        await app.sees("Again.")
        await app.rests()
        await command(app, "/export")
        await app.shows(ChooseScreen)
        await app.press("enter")
        await says(app, "4 messages exported to")
        assert file.name == f"crushpy-{app.conversation.info.id}.md"
        assert "Again." in file.read_text()
        await command(app, "/export")
        await app.shows(ChooseScreen)
        await app.press("escape")
        await app.shows(type(app.chat))


async def test_places_that_cannot_be_written_are_named_with_the_way_out(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.")
    (workspace / "docs").mkdir()
    (workspace / "file").write_text("mine")
    os.mkfifo(workspace / "pipe")
    async with start(size=(160, 40)) as app:
        await talked(app)
        for argument, said in {
            "docs": "docs is a folder. Name a file in it: /export docs/crushpy-",
            "no/such/notes.md": "no/such does not exist. Create it first",
            "file/notes.md": "file/notes.md cannot be written: Not a directory",
            "pipe": "pipe is not a regular file",
            "x" * 300: "cannot be written: File name too long",
        }.items():
            await command(app, f"/export {argument}")
            await says(app, said)
        assert sorted(entry.name for entry in workspace.iterdir()) == ["docs", "file", "pipe"]


async def test_an_export_to_an_html_file_is_a_page_once_the_user_agrees(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.")
    async with start(size=(140, 30)) as app:
        await talked(app)
        await command(app, "/export talk.html")
        await app.shows(ChooseScreen)
        await app.sees("Write the page? 0 redactions.", "left out: system prompts")
        await app.press("escape")
        await says(app, "Nothing was written.")
        assert list(workspace.iterdir()) == []
        await command(app, "/export talk.html")
        await app.shows(ChooseScreen)
        await app.press("enter")
        await says(app, "2 messages exported to")
    assert "Content-Security-Policy" in (workspace / "talk.html").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_of_somebody_else_is_told(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script("Hi.")
    (workspace / "locked").mkdir(mode=0o500)
    async with start(size=(160, 40)) as app:
        await talked(app)
        await command(app, "/export locked/notes.md")
        await says(app, "cannot be written: Permission denied")


async def test_a_name_with_a_tilde_is_in_the_users_home(
    start: Start, llm: ScriptedLLM, tmp_path: Path
) -> None:
    llm.script("Hi.")
    async with start() as app:
        await talked(app)
        await command(app, "/export ~/notes.md")
        await says(app, "2 messages exported to")
    assert "Hi." in (tmp_path / "user" / "notes.md").read_text()


# --- another conversation --------------------------------------------------------------------------------


async def test_a_new_session_is_refused_while_the_agent_works_and_the_queue_stays(
    start: Start, llm: ScriptedLLM
) -> None:
    llm.script(HALF, "To the second.")
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.say("second")
        await app.sees("1 queued")
        session = app.conversation.info.id
        await app.press("ctrl+n")
        await app.sees("The agent is working. Press Esc to interrupt it first.")
        assert app.conversation.busy and app.conversation.info.id == session
        llm.release()
        await app.sees("To the second.")


async def test_resuming_another_conversation_is_refused_too(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hi.", HALF)
    async with start() as app:
        await talked(app)
        await app.press("ctrl+n")
        await app.sees_no("Hi.")
        await app.say("first")
        await app.sees("Half an")
        await app.press("ctrl+r")
        await app.shows(SessionsScreen)
        await app.sees("hello")
        await app.press("down", "enter")
        await app.sees("The agent is working. Press Esc to interrupt it first.", "Half an")


async def test_a_running_command_is_not_left_behind_either(start: Start, workspace: Path) -> None:
    async with start() as app:
        await command(app, "!sleep 1000")
        await app.sees("● ! sleep 1000")
        await app.press("ctrl+n")
        await app.sees("A command of yours is running. Press Esc to stop it first.", "● ! sleep 1000")


# --- cost ------------------------------------------------------------------------------------------------


async def test_cost_tells_tokens_and_money_and_what_lies_ahead(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    prices = "context_window = 20000\ninput_cost = 2.0\noutput_cost = 10.0\n"
    (home / "config.toml").write_text(f'[models."openai/test-model"]\n{prices}')
    llm.script(Reply("Hi.", usage=Usage(13_000, 100)))
    async with start(size=(140, 30)) as app:
        await command(app, "/cost")
        await app.sees("no forecast yet")
        await app.press("escape")
        await talked(app)
        await app.until(lambda: app.conversation.session.usage.total == 13_164, "the title is counted too")
        assert "turns left" not in app.text
        await command(app, "/cost")
        await app.shows(PanelScreen)
        await app.sees(
            "Cost",
            "This conversation: 13,164 tokens (13,063 in, 101 out), $0.0270",
            "tokens a turn",
            "compacting now",
            "13,164 tokens, $0.0270 (the last 30 days)",
            "By conversation",
        )
        await app.press("escape")
        await command(app, "/cost soon")
        await says(app, "'soon' is not a number of days.")


@pytest.mark.parametrize(("typed", "named"), [("/lineage", "/tree"), ("/undo-boundary", "/undo-compaction")])
async def test_unknown_command_names_the_present_one_when_it_was_renamed(
    start: Start, typed: str, named: str
) -> None:
    async with start(toasts=True) as app:
        await app.say(typed)
        await app.sees(f"There is no command {typed}.", f"Did you mean {named}?")


async def test_toast_disappears_with_the_next_command(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    async with start(toasts=True) as app:
        for then in ("/context", "!true", "hi"):
            await app.say("/modle")
            await app.sees("Did you mean")
            app.chat.prompt.draft = ""
            await app.say(then)
            await app.sees_no("Did you mean")
            await app.press("escape")
