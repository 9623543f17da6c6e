"""Esc has one meaning at a time, and small keys do what hands expect of them."""

import time
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM
from textual.widgets._toast import Toast

from crushpy.tui.actions import ACTIONS
from crushpy.tui.notify import tell
from crushpy.tui.screens import chat_host
from crushpy.tui.screens.help import HelpScreen
from crushpy.tui.screens.inspector import InspectorScreen
from crushpy.tui.widgets.key_bar import KeyBar
from crushpy.tui.widgets.key_sheet import KeySheet

pytestmark = pytest.mark.slow

__all__ = ["start"]

HALF = Stall(Reply("Half an answer and more", chunk=4), after=3)


def toasts(app: Driven) -> list[Toast]:
    return list(app.app.screen.query(Toast))


async def test_escape_takes_toasts_away_and_they_never_cover_the_prompt(
    start: Start, llm: ScriptedLLM
) -> None:
    for size in ((80, 24), (30, 8)):
        async with start(size=size, toasts=True) as app:
            for number in range(3):
                app.chat.notify(f"told in passing {number}", timeout=600)
            await app.until(lambda: len(toasts(app)) == 3, "toasts")
            await app.pilot.pause()
            prompt = app.chat.prompt.region
            assert not any(toast.region.overlaps(prompt) for toast in toasts(app))
            await app.press("escape")
            await app.until(lambda: not toasts(app), "the toasts to go")


@pytest.mark.parametrize("size", [(110, 34), (80, 24), (50, 16)])
async def test_toasts_cover_neither_heading_nor_keys_of_a_screen(
    start: Start, llm: ScriptedLLM, size: tuple[int, int]
) -> None:
    async with start(size=size, toasts=True) as app:
        await app.press("ctrl+o")
        await app.shows(InspectorScreen)
        await app.press("d")
        await app.until(lambda: toasts(app), "a toast")
        await app.pilot.pause()
        [toast] = toasts(app)
        screen = app.app.screen
        for shown in (screen.query_one("#heading"), screen.query_one(KeyBar)):
            assert not toast.region.overlaps(shown.region)


async def test_escape_twice_in_an_empty_prompt_rewinds_and_only_there(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def rewind(chat: object, argument: str) -> None:
        asked.append(argument)

    monkeypatch.setattr(ACTIONS["rewind"], "rewind", rewind)
    monkeypatch.setattr(chat_host, "REWIND_WINDOW_S", 60.0)  # two keys may be far apart on a busy machine
    monkeypatch.setattr(chat_host, "NO_REWIND_AFTER_STOP_S", 60.0)
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.press("tab", "escape", "escape")  # back, interrupt
        await app.sees("Interrupted.")
        await app.rests()
        assert asked == []
        await app.type("words")
        await app.press("escape", "escape")
        assert app.chat.prompt.draft == "words"
        await app.press("ctrl+u")
        app.chat.last_stop = time.monotonic()
        await app.press("escape", "escape")
        await app.pilot.pause()
        assert asked == []  # so soon after an interrupt it is one press too many
        app.chat.last_stop = -60.0
        await app.press("escape", "escape")
        await app.until(lambda: asked == [""], "the rewind")


async def test_ctrl_d_deletes_where_there_is_something_and_leaves_where_there_is_nothing(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start() as app:
        await app.type("ab")
        await app.press("home", "ctrl+d")
        await app.until(lambda: app.chat.prompt.draft == "b", "a letter less")
        await app.press("ctrl+d")
        assert app.app.is_running
        await app.press("ctrl+d")
        await app.until(lambda: not app.app.is_running or app.app._exit, "the app to leave")


async def test_a_question_mark_in_an_empty_prompt_shows_the_keys(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        await app.press("question_mark")
        await app.sees("run a shell command", "? again: all keys")
        sheet = app.chat.query_one(KeySheet)
        assert sheet.region.y > app.chat.prompt.region.y and sheet.region.height <= 8
        await app.press("escape")
        await app.sees_no("? again: all keys")
        await app.press("question_mark", "a")
        await app.until(lambda: app.chat.prompt.draft == "a" and not app.chat.query(KeySheet), "typing")
        await app.press("backspace", "question_mark")
        await app.sees("? again: all keys")
        await app.press("question_mark")
        await app.shows(HelpScreen)
        await app.sees("In the prompt")


async def test_escape_closes_the_sheet_of_keys_before_it_interrupts(start: Start, llm: ScriptedLLM) -> None:
    llm.script(HALF)
    async with start() as app:
        await app.say("first")
        await app.sees("Half an")
        await app.press("question_mark")
        await app.sees("? again: all keys")
        await app.press("escape")
        await app.sees_no("? again: all keys")
        assert app.conversation.busy
        await app.press("escape")
        await app.sees("Interrupted.")


@pytest.mark.parametrize("width", [40, 80, 200])
async def test_the_sheet_of_keys_has_at_most_eight_lines(start: Start, width: int) -> None:
    async with start(size=(width, 24)) as app:
        await app.press("question_mark")
        await app.sees("? again: all keys", "name a file")
        assert app.chat.query_one(KeySheet).region.height <= 8


async def test_commands_answer_to_the_names_of_other_agents(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("Hi.")
    async with start() as app:
        await app.say("hello")
        await app.sees("Hi.")
        await app.rests()
        before = app.conversation.info.id
        await app.type("/cle")
        await app.sees("/new", "(/clear)")
        await app.press("escape", "ctrl+u")
        await app.say("/clear")
        await app.until(
            lambda: app.chat.conversation is not None and app.conversation.info.id != before, "another one"
        )
        await app.say("/resume")
        await app.sees("Sessions", "hello")
        await app.press("escape")
        await app.say("/exit")
        await app.until(lambda: app.app._exit, "the app to leave")


@pytest.mark.parametrize(("typed", "meant"), [("/sesions", "/sessions"), ("/modle", "/model")])
async def test_an_unknown_command_says_what_may_have_been_meant(
    start: Start, llm: ScriptedLLM, typed: str, meant: str
) -> None:
    async with start() as app:
        await app.say(typed)
        await app.sees("Did you mean", meant)
        assert app.chat.prompt.draft == typed


async def test_repeated_hint_is_shown_once(start: Start) -> None:
    async with start(toasts=True) as app:
        await app.opened()
        for _ in range(5):
            tell(app.chat, "Only messages can be pinned here.")
            await app.pilot.pause()
        tell(app.chat, "Something else.")
        await app.sees("Something else.")
        assert app.notices.splitlines() == ["Only messages can be pinned here.", "Something else."]
