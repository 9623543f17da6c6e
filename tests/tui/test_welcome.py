"""The line about the built-in demo: shown to who is new, taken away by a key, and gone from then on."""

import tomllib
from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm.server import ScriptedLLM

from crushpy.tui.screens.sessions import SessionsScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]

LINE = "This is demo/tour"


async def test_escape_takes_the_line_away_for_good(start: Start, home: Path) -> None:
    async with start(model="demo/tour") as app:
        await app.sees(LINE, "Esc hides this notice permanently")
        await app.press("escape")
        await app.sees_no(LINE)
        await app.say("/new")
        await app.until(lambda: app.chat.conversation is not None and not app.conversation.history)
    assert tomllib.loads((home / "state.toml").read_text())["welcome"] == "hide"
    async with start(model="demo/tour") as app:
        await app.sees("demo/tour")
        assert LINE not in app.text


async def test_an_escape_that_interrupts_leaves_the_line(start: Start) -> None:
    async with start(model="demo/tour") as app:
        await app.sees(LINE)
        app.chat.prompt.draft = "!sleep 1000"
        app.chat.prompt.action_submit()
        await app.sees("● ! sleep 1000")
        await app.press("escape")
        await app.sees("stopped", LINE)


async def test_welcome_reports_when_its_state_cannot_be_stored(start: Start, home: Path) -> None:
    async with start(model="demo/tour") as app:
        await app.sees(LINE)
        (home / "state.toml").mkdir(parents=True)
        await app.press("escape")
        await app.sees_no(LINE)
        await app.sees("The notice will be shown again", "state.toml")


async def test_welcome_has_no_demo_line_for_a_real_model(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        await app.sees("test-model")
        assert "demo/tour" not in app.text


async def test_a_dialog_that_is_left_leaves_the_greeting(start: Start) -> None:
    async with start(size=(120, 36), pick=True) as app:
        await app.shows(SessionsScreen)
        await app.press("escape")
        await app.sees("crushpy 0", "Ctrl+P commands")
        await app.say("/status")
        await app.sees("sandbox")
        await app.sees_no("crushpy 0")


async def test_the_last_conversation_is_a_key_away(start: Start, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    async with start(size=(120, 36)) as app:
        await app.say("greet me")
        await app.sees("Hello.")
        await app.rests()
        await app.say("/new")
        await app.sees("“greet me”", "F2 resumes it")
        await app.press("f2")
        await app.sees("Hello.")
        await app.press("f2")
        await app.sees("There is no later conversation in this folder.")


async def test_welcome_is_not_wrapped_on_a_wide_screen(start: Start, llm: ScriptedLLM) -> None:
    async with start(size=(200, 50)) as app:
        await app.sees("█▀▀ █▀█ █ █ █▀▀ █ █ █▀█ █ █", "? keys   Ctrl+P commands   @ file   ! shell")
